"""Names of arguments -> values of them, as Python's text: drawn ones, wrong ones, and such as the docs leave open."""

from __future__ import annotations


def table(text: str) -> dict[str, list[str]]:
    """Of lines `name: value ; value`, which go on in indented ones."""
    rows = (line.split(": ", 1) for line in text.strip().replace("\n    ", " ").splitlines())
    return {name: values.split(" ; ") for name, values in rows}


MODULES = (
    "K.RandomHorizontalFlip()",
    "K.ColorJitter(0.2, 0.2, 0.2, 0.1, p=0.8)",
    "K.RandomErasing(p=0.5)",
    "K.RandomAffine(10.0, (0.1, 0.1))",
    "K.RandomGaussianBlur((3, 3), (0.1, 2.0), p=0.5)",
    "K.RandomGrayscale(p=0.3)",
    "torch.nn.Identity()",
)
MOVED = (
    "K.AugmentationSequential(K.RandomAffine(9.0), K.ColorJitter(0.2, 0.2), "
    "data_keys=['input', 'mask', 'bbox_xyxy', 'keypoints'])"
)
FIXED_CROPS = (
    "fastpipe.CenterCrop()",
    "fastpipe.CenterCrop(resize=20)",
    "fastpipe.CenterCrop(resize=9, interpolation='bicubic')",
    "fastpipe.Resize()",
    "fastpipe.Resize(interpolation='nearest')",
    "fastpipe.Resize(antialias=False)",
    "fastpipe.Letterbox()",
    "fastpipe.Letterbox(fill=(1, 2, 255), centered=False, mask_fill=255)",
    "fastpipe.Letterbox(padding_mode='reflect', interpolation='bicubic')",
    "fastpipe.Letterbox(padding_mode='symmetric', rounded=True)",
    "fastpipe.Letterbox(padding_mode='edge')",
)
RANDOM_CROPS = (
    "fastpipe.RandomResizedCrop()",
    "fastpipe.RandomResizedCrop(scale=(0.05, 0.4), ratio=(1.0, 1.0))",
    "fastpipe.RandomResizedCrop(scale=(1.0, 1.0), interpolation='bicubic')",
    "fastpipe.RandomResizedCrop(scale=(0.01, 0.01), ratio=(0.1, 10.0), antialias=False)",
    "fastpipe.RandomCrop(pad_if_needed=True)",
    "fastpipe.RandomCrop(padding=(3, 5), pad_if_needed=True, fill=7, mask_fill=3)",
    "fastpipe.RandomCrop(padding=(1, 2, 3, 4), pad_if_needed=True, padding_mode='edge')",
    "fastpipe.RandomCrop(resize=30, padding_mode='reflect', pad_if_needed=True)",
    "fastpipe.RandomCrop(resize=30, interpolation='nearest', pad_if_needed=True)",
)
MANY_CROPS = (
    "fastpipe.FiveCrop()",
    "fastpipe.FiveCrop(resize=40)",
    "fastpipe.TenCrop(resize=40)",
    "fastpipe.RandomCrop(count=3, pad_if_needed=True)",
)
GRIDS = (
    "fastpipe.Grid()",
    "fastpipe.Grid(stride=9)",
    "fastpipe.Grid(stride=(11, 8), fill=9)",
)
# Of data with boxes.
OBJECT_CROPS = (
    "fastpipe.CropAt()",
    "fastpipe.CropAt('boxes', scale=1.3, square=True)",
    "fastpipe.CropAt('boxes', scale=0.4, interpolation='nearest')",
    "fastpipe.RandomCrop(where='boxes', pad_if_needed=True)",
    "fastpipe.RandomCrop(where='boxes', resize=30, padding=4, pad_if_needed=True)",
    "fastpipe.RandomCrop(where='boxes', count=2, pad_if_needed=True)",
)
WRONG = table("""
batch_size: 0 ; -1 ; 2.5 ; '8' ; True ; None ; float('nan') ; [4]
size: 0 ; -3 ; '16' ; (8,) ; (8, 8, 8) ; (8, 0) ; 1.5 ; True ; lambda epoch: 0 ; lambda epoch: 'x' ;
    fastpipe.Buckets ; fastpipe.Buckets(area=0) ; fastpipe.Buckets(area=9, min_size=9) ;
    fastpipe.Buckets(size_divisible=0) ; fastpipe.Buckets(min_size=20, max_size=10) ;
    fastpipe.Buckets(max_size='9') ; fastpipe.Buckets(sizes=[9], area=9) ; fastpipe.Buckets(sizes=[]) ;
    fastpipe.Buckets(no_upscale=True) ; fastpipe.Buckets(min_size=9, fit='cover')
size_choices: [] ; [0] ; 8 ; '8' ; [8, None] ; [(8, 8, 8)] ; {8}
train: 1 ; 'yes' ; None
crop: 'center' ; fastpipe.CropAt(5) ; fastpipe.CropAt(scale=0) ; fastpipe.CropAt('nothing') ;
    fastpipe.RandomCrop(where=1) ; fastpipe.CenterCrop ; fastpipe.CenterCrop(resize=0) ; fastpipe.CenterCrop(resize=2.5)
hflip: 2 ; -0.1 ; 'yes' ; float('nan') ; [True]
shuffle: 1 ; 'no' ; 0.0
seed: -1 ; 2**64 ; 1.5 ; '0' ; None ; True
epoch_size: 0 ; -1 ; 2.5 ; 'all' ; True ; [5]
drop_last: 1 ; 'no'
num_workers: -1 ; 1.5 ; 5000 ; '2' ; True
prefetch_factor: 0 ; -1 ; 1.5 ; '2' ; True
device: 'gpu' ; 3 ; 'cuda' ; 'cpu:x' ; []
augment: 'randaugment' ; [1] ; torch.nn.ReLU ; 1 ; lambda images: images ; fastpipe.Augment ;
    fastpipe.Augment(mean=(1, 2)) ; fastpipe.Augment(std=(0, 1, 1)) ; fastpipe.Augment(mean=None) ;
    fastpipe.Augment(dtype=torch.int8) ; fastpipe.Augment(dtype='float16') ; fastpipe.Augment(erasing=2) ;
    fastpipe.Augment(mixup=-1) ; fastpipe.Augment(cutmix='1') ; fastpipe.Augment(label_smoothing=1) ;
    fastpipe.Augment(num_classes=0) ; fastpipe.Augment(compile='yes') ; fastpipe.Augment.randaugment(n=-1) ;
    fastpipe.Augment.randaugment(m=31) ; fastpipe.Augment.simclr(strength=3)
channels: 3 ; 'L' ; 'RGB' ; None ; ['rgb']
dtype: 'uint8' ; np.uint8 ; torch.int16 ; torch.bfloat16 ; None ; [torch.uint8]
exact: 1 ; 'yes' ; None
on_error: 'ignore' ; None ; True
verify: 1 ; 'yes' ; None
fields: [] ; 'image' ; ('image', fastpipe.Boxes('boxes', form='nested')) ;
    ('image', fastpipe.Boxes('boxes', min_size=float('nan'))) ;
    ('image', fastpipe.Points('pose', flip_pairs=[(1, 1)])) ; ('image', fastpipe.Points('pose', flip_pairs=[(0, 99)])) ;
    ('image', fastpipe.Boxes('label')) ; ('image', 'nothing') ; ('image', 'image') ; (1,) ; 5
boxes: 'list' ; None
min_box_size: 1 ; 'x'
min_box_area: 0
flip_pairs: [] ; [(1, 2)]
rank: -1 ; '0' ; 1.0 ; 99
world_size: 0 ; '1' ; 1.5
partition: 'nodes' ; None ; 0 ; -1 ; '2' ; 1.5 ; True
stall_timeout: 0 ; -1 ; '60' ; None ; float('nan')
""")
WRONG_OPEN = table("""
max_pixels: 0 ; -1 ; 'x' ; 1.5 ; None ; True
cache_limit: -1 ; 'much' ; None
cache_dir: 5
storage_options: 5 ; 'x' ; [1]
read_timeout: 0 ; -1 ; 'x' ; None ; float('nan')
""")
UNSURE = table("""
batch_size: np.int64(4) ; torch.tensor(4) ; 4.0
size: np.int64(9) ; [8, 9] ; np.array([8, 9]) ; torch.Size([8, 9])
hflip: 1 ; 0 ; np.float32(0.5) ; np.bool_(True)
seed: np.uint64(2**64 - 1) ; np.int64(3)
epoch_size: np.int64(9)
num_workers: np.int32(2) ; 64 ; 0
prefetch_factor: None
stall_timeout: float('inf') ; 1e9 ; 5
views: (fastpipe.View(9), fastpipe.View(8)) ; np.int64(2) ; 40
fields: ['image', 'label'] ; {'image': 1} ; {'image'}
augment: [] ; () ; torch.nn.Sequential() ; torch.nn.ModuleList()
size_choices: (8, 9) ; np.array([8, 9]) ; range(8, 10) ; [8] * 50
device: 'meta' ; 'cpu:0' ; 'cpu:1' ; torch.device('meta') ; ''
crop: fastpipe.CropAt(scale=1e9) ; fastpipe.CropAt(scale=1e-9, square=True) ;
    fastpipe.CenterCrop(resize=3000) ; fastpipe.RandomResizedCrop(scale=(1e-9, 1e-9)) ;
    fastpipe.RandomResizedCrop(ratio=(1e-3, 1e3)) ; fastpipe.RandomCrop() ; fastpipe.RandomCrop(resize=40) ;
    fastpipe.RandomCrop(padding=200, padding_mode='reflect') ; fastpipe.RandomCrop(padding=2) ;
    fastpipe.RandomResizedCrop(interpolation=Image.Resampling.BICUBIC)
""")
