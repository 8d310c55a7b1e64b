"""The groups of rows in docs/reference/sources-table.md, by files of tests/sources/people."""

from __future__ import annotations

OTHER = "Other layouts"

# Title -> names of files, without "test_" and ".py".
GROUPS = {
    "Class folders": "class_folder_alone classes_in_paths classes_without_images deeper_layouts "
    "folder_roles given_class_folders named_classes numbers_and_junk only_folders "
    "variants_of_pictures wrapped_sources",
    "Splits": "fields_of_splits given_split_columns lists_of_cub lists_of_splits numbers_in_splits "
    "splits_beside_training splits_by_themselves splits_of_a_root splits_of_known_datasets "
    "splits_of_lists tables_named_with_splits tables_of_splits",
    "Tables of images and labels": "encodings_of_tables given_class_columns given_tables "
    "headless_lists images_elsewhere images_without_a_row json_mappings labels_in_remedies "
    "likely_columns lines_before_header lists_beside_folders named_beside_tables odd_cells "
    "other_pictures_of_a_name tables_of_folders tables_of_pixels targets_of_numbers",
    "Parquet and Hugging Face": "detections_of_hugging_face parquet_of_hugging_face",
    "YOLO and Pascal VOC": "bad_boxes box_files voc_in_class_folders",
    "COCO": "classes_of_whole_images coco_exports coco_panoptic",
    "Annotation tools and formats of known datasets": "given_bdd given_crowds given_cub given_cvat "
    "given_dota given_ground_truth given_kitti given_label_studio given_labelme given_mot "
    "given_oidv4 given_segment_anything given_supervisely given_svhn given_via given_wider_face "
    "given_xview",
    "Tables and lists of boxes and points": "boxes_of_icdar boxes_without_class_names "
    "given_box_tables landmarks_of_300w lists_of_boxes tables_of_points words_of_icdar",
    "Masks": "colours_of_masks images_beside_masks masks_in_several_forms masks_of_defects "
    "masks_of_known_datasets masks_of_tools masks_of_voc names_of_values run_lengths",
    "Tars": "given_tars",
    "Kinds of images": "deep_images given_slides given_transparency turned_photos",
    "Annotations that are named and not read": "annotation_files annotations_above matlab_labels "
    "remedies_that_work unread_names",
}
_GROUP_OF_FILE = {file: title for title, files in GROUPS.items() for file in files.split()}


def group_of(module: str) -> str:
    """The group of the rows in a file, such as "test_given_tars"."""
    return _GROUP_OF_FILE.get(module.removeprefix("test_"), OTHER)
