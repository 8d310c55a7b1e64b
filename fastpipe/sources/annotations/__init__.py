"""Annotations: COCO, VOC, YOLO, masks -> boxes, points and masks of a listing."""
