"""The listings of Pascal VOC and YOLO, for `kinds`."""

from fastpipe.sources.voc import list_voc as list_voc
from fastpipe.sources.yolo import list_yolo as list_yolo
