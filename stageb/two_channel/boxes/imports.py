"""Convert annotations of other formats to this project's rows: Pascal VOC XML and COCO JSON here,
others in ``formats.py``.

The input is not trusted, and all faults are reported at once. What can be corrected without
guessing is corrected and counted: boxes without area and duplicate objects are dropped, corners are
put in order, boxes are clipped to the image. Crowds (COCO's ``iscrowd``) are kept as crowds: they
are not trained on. Polygons become the boxes around them if the user asks for it. Corners are read
as edges in pixels, as they are: if a tool counts pixels from 1, two edges are off by one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Self
from xml.etree import ElementTree

from stageb.errors import BadInputError, BadLine, InputError
from stageb.store import disk
from stageb.two_channel.boxes.data import find_unit_fault
from stageb.two_channel.types import Box
from stageb.untrusted import strict_json
from stageb.untrusted.clean_text import text_fault
from stageb.untrusted.strict_json import FaultError, file_named, lines, short, upright_picture_named

MAX_XML = 4 << 20  # bytes of an annotation; usual ones have some thousand
MAX_JSON = 1 << 30  # bytes of a file of annotations; COCO's has half of that
NO_AREA, TWICE, CROWD, CUT = "without area", "duplicates", "crowds", "clipped to the image"
TURNED = "with corners in the other order"
_ENCODING = re.compile(rb"""encoding\s*=\s*["']([^"']*)""")
POLYGON = "polygons replaced by boxes"
POLYGONS_REMEDY = "give --polygons to take the box around it, or remove it"


@dataclass
class ImportedData:
    """The rows that a source was converted to, and the faults that were found in it."""

    source: str  # the file or folder of annotations, for messages
    kind: str = "annotations"
    rows: list[dict[str, Any]] = field(default_factory=list)  # as data.py reads them
    places: list[str] = field(default_factory=list)  # for each row: where its image is annotated
    # of objects that were dropped or changed, by reason
    counts: Counter[str] = field(default_factory=Counter)
    bad: list[BadLine] = field(default_factory=list)
    # for each image: the place that named it first
    _first: dict[PurePosixPath, str] = field(default_factory=dict)
    # boxes as they are given, and their image's size
    _told: list[tuple[tuple[int, int], Box]] = field(default_factory=list)

    def add(
        self,
        name: str,
        size: tuple[int, int],
        objects: Iterable[tuple[str, Box]],
        crowds: Iterable[tuple[str, Box]] = (),
        *,
        place: str,
    ) -> None:
        """Add an image of ``size`` (width, height) with its objects and crowds; ``place`` is where
        it is annotated.

        Raises ``FaultError`` if another place has named the image before, in this or in an
        equivalent spelling.
        """
        if (first := self._first.setdefault(PurePosixPath(name), place)) is not place:
            remedy = "put all objects of a picture in one place, and remove the other"
            raise FaultError(f"{short(name)} is annotated at {first} already", remedy)
        written = self._boxes(size, objects)
        marked = [each | {"iscrowd": 1} for each in self._boxes(size, crowds)]
        self.counts[CROWD] += len(marked)
        self.rows.append(
            {"images": [name], "width": size[0], "height": size[1], "objects": written + marked}
        )
        self.places.append(place)

    def count_objects(self) -> int:
        """How many objects the rows hold, crowds left out."""
        return sum(len(row["objects"]) for row in self.rows) - self.counts[CROWD]

    def fault(self, fault: FaultError, place: str = "") -> None:
        """Note a fault at a place of the source, or of the source as a whole."""
        self.bad.append(
            BadLine(self.source, 0, f"{place}: {fault.what}" if place else fault.what, fault.remedy)
        )

    def checked(self) -> Self:
        """Itself, if it has rows and no faults. Raises ``BadInputError`` with every fault."""
        if not self.rows and not self.bad:
            self.fault(FaultError("has no annotated image", "name one that has"))
        if not self.bad and (fault := find_unit_fault(self._told)):
            self.fault(fault)
        if self.bad:
            raise BadInputError(self.kind, self.bad)
        return self

    def _boxes(
        self, size: tuple[int, int], objects: Iterable[tuple[str, Box]]
    ) -> list[dict[str, Any]]:
        """``objects`` in the form of a row, clipped to the image and without duplicates."""
        kept: dict[tuple[str, Box], None] = {}
        for desc, given in objects:
            told = bound_corners(given)
            self._told.append((size, told))
            self.counts[TURNED] += told != given
            x1, y1, x2, y2 = (min(max(0.0, at), size[axis % 2]) for axis, at in enumerate(told))
            box = (x1, y1, x2, y2)
            if x1 >= x2 or y1 >= y2:
                self.counts[NO_AREA] += 1
            elif (desc, box) in kept:
                self.counts[TWICE] += 1
            else:
                self.counts[CUT] += box != told
                kept[desc, box] = None
        return [
            {"desc": desc, "bbox_2d": [int(at) if at == int(at) else at for at in box]}
            for desc, box in kept
        ]


def bound_corners(box: Box) -> Box:
    """``box`` with its upper left corner first."""
    x1, y1, x2, y2 = box
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def read_voc(folder: Path, split: str | None) -> ImportedData:
    """Read a Pascal VOC folder: ``Annotations/*.xml`` of images in ``JPEGImages``.

    ``split`` names ``ImageSets/Main/{split}.txt``, which lists annotations; None: all of them, by
    name. Images are named relative to ``folder``. Raises ``InputError``.
    """
    listing = f"ImageSets/Main/{split}.txt" if split is not None else "Annotations"
    made, lines_of = ImportedData(str(folder / listing)), dict[str, int]()
    for name, (listed, line) in _list_annotations(folder, split):
        if (first := lines_of.setdefault(name, line)) != line:
            what = f"annotation {short(name)} is on line {first} already"
            made.bad.append(BadLine(listed, line, what, "remove one of the two"))
            continue
        try:
            path = file_named(f"Annotations/{name}.xml", folder)
        except FaultError as fault:
            made.bad.append(fault.in_file(listed, line))
            continue
        place = str(folder / "Annotations" / f"{name}.xml")
        try:
            _add_voc(made, path, folder, place)
        except FaultError as fault:
            made.bad.append(fault.in_file(place))
    return made.checked()


def read_json(file: Path) -> Any:
    """The content of a JSON file. Raises ``BadInputError``."""
    try:
        size, raw = 0, list[bytes]()
        for _, line in lines(str(file), "annotation", most=MAX_JSON):
            size += len(line)
            if size > MAX_JSON:
                raise FaultError(f"over {MAX_JSON >> 20} MiB", "split it into several files")
            raw.append(line)
        return strict_json.loads(b"".join(raw).decode("utf-8"))
    except FaultError as fault:
        raise BadInputError("annotations", [fault.in_file(str(file))]) from None
    except UnicodeDecodeError:
        raise BadInputError(
            "annotations", [BadLine(str(file), 0, "not UTF-8", "save it as UTF-8")]
        ) from None
    except ValueError as error:
        number = error.lineno if isinstance(error, json.JSONDecodeError) else 0
        remedy = "fix it, or export it again"
        raise BadInputError(
            "annotations", [BadLine(str(file), number, f"not JSON: {error}", remedy)]
        ) from None


def read_coco(file: Path, folder: Path, polygons: bool = False) -> ImportedData:
    """Read a COCO JSON file about the images in ``folder``; with ``polygons``, an object without a
    bbox gets the box around its polygons. Raises ``InputError``."""
    told = read_json(file)
    parts = [
        told.get(name) if isinstance(told, dict) else None
        for name in ("images", "annotations", "categories")
    ]
    if not all(
        isinstance(part, list) and all(isinstance(each, dict) for each in part) for part in parts
    ):
        remedy = "name a COCO file: an object with lists of images, annotations and categories"
        raise BadInputError("annotations", [BadLine(str(file), 0, "not in COCO format", remedy)])
    images, annotations, categories = (part or [] for part in parts)
    made = ImportedData(str(file))
    boxes, crowds = _parse_coco_boxes(made, images, annotations, categories, polygons)
    for image, place in zip(images, name_places("image", images), strict=True):
        try:
            name = image.get("file_name")
            size = find_size(name, folder, image.get("width"), image.get("height"))
            key = _normalise_id(image.get("id")) or ""
            made.add(name, size, boxes.get(key, ()), crowds.get(key, ()), place=place)
        except FaultError as fault:
            made.fault(fault, place)
    return made.checked()


def name_places(kind: str, entries: Sequence[dict[str, Any]]) -> list[str]:
    """A name for each item of a list, for messages: by its id if that is unique, else by its
    number."""
    keys = [_normalise_id(each.get("id")) for each in entries]
    counts = Counter(keys)
    return [
        f"{kind} {short(each['id'])}"
        if key is not None and counts[key] == 1
        else f"{kind} number {number}"
        for number, (each, key) in enumerate(zip(entries, keys, strict=True), 1)
    ]


def clean_name(name: str) -> str:
    """The name of a category, stripped. Raises ``FaultError`` if it has characters that data may
    not contain."""
    if fault := text_fault(name.strip()):
        raise FaultError(f"its name has {fault}", "remove it")
    return name.strip()


def _list_annotations(folder: Path, split: str | None) -> list[tuple[str, tuple[str, int]]]:
    """The names of annotations, each with the file and the line that name it."""
    if split is None:
        names = sorted(path.stem for path in (folder / "Annotations").glob("*.xml"))
        if not names:
            raise InputError(
                f"{folder}: has no Annotations/*.xml; name the folder that has Annotations and "
                f"JPEGImages"
            )
        return [(name, (str(folder / "Annotations"), 0)) for name in names]
    name = f"ImageSets/Main/{split}.txt"
    path = str(folder / name)
    try:
        read = [
            (number, raw.decode("utf-8").split())
            for number, raw in lines(file_named(name, folder), "list", disk.open_file)
        ]
    except (FaultError, UnicodeDecodeError) as error:
        what = error.what if isinstance(error, FaultError) else "not UTF-8"
        raise InputError(f"{path}: {what}; --split names a list in ImageSets/Main") from None
    return [(words[0], (path, number)) for number, words in read if words]


def _add_voc(made: ImportedData, path: str, folder: Path, place: str) -> None:
    root = _read_xml(path)
    name = f"JPEGImages/{root.findtext('filename', '').strip()}"
    told = [_parse_int(root.findtext(f"size/{side}")) for side in ("width", "height")]
    # some tools write 0 for an unknown size
    size = find_size(name, folder, *(value or None for value in told))
    objects = [
        _parse_voc_object(node, number) for number, node in enumerate(root.iter("object"), 1)
    ]
    made.add(name, size, objects, place=place)


def _read_xml(path: str) -> ElementTree.Element:
    if (size := Path(path).stat().st_size) > MAX_XML:
        raise FaultError(
            f"{size >> 20} MiB, at most {MAX_XML >> 20}", "name an annotation in VOC format"
        )
    raw = b"".join(line for _, line in lines(path, "annotation", disk.open_file))
    if b"<!" in raw.replace(b"<!--", b""):
        raise FaultError("has a document type or entities", "remove them: annotations need none")
    try:
        root = ElementTree.fromstring(raw)
    except ElementTree.ParseError as error:
        raise FaultError(
            f"not XML: {error}", "export it again from its source", line=error.position[0]
        ) from None
    # raised by Python's codecs, which handle encodings that the parser does not know
    except (LookupError, ValueError):
        said = _ENCODING.search(raw)
        what = (
            f"the encoding {short(said[1].decode('ascii', 'replace') if said else '')}, "
            f"which the parser does not know"
        )
        raise FaultError(what, "save it as UTF-8, and declare that", line=1) from None
    if root.tag != "annotation":
        raise FaultError(
            f"the element {short(root.tag)}",
            "name a file in VOC format, <annotation>...</annotation>",
        )
    return root


def _parse_voc_object(node: ElementTree.Element, number: int) -> tuple[str, Box]:
    desc = (node.findtext("name") or "").strip()
    if not desc:
        raise FaultError(f"object {number}: no name", "give it a name")
    try:
        desc = clean_name(desc)
    except FaultError as fault:
        raise FaultError(f"object {number}: {fault.what}", fault.remedy) from None
    corners = [
        parse_number(node.findtext(f"bndbox/{corner}"))
        for corner in ("xmin", "ymin", "xmax", "ymax")
    ]
    if None in corners:
        raise FaultError(
            f"object {number}: no bndbox of four numbers", "give it xmin, ymin, xmax and ymax"
        )
    x1, y1, x2, y2 = (each or 0.0 for each in corners)
    return desc, (x1, y1, x2, y2)


def _parse_coco_boxes(
    made: ImportedData,
    images: Sequence[Any],
    annotations: Sequence[Any],
    categories: Sequence[Any],
    polygons: bool,
) -> tuple[dict[str, list[tuple[str, Box]]], dict[str, list[tuple[str, Box]]]]:
    """The objects and the crowds of each image, by the image's id."""
    found: dict[str, list[tuple[str, Box]]] = {
        key: [] for key in _index_by_id(made, "image", images, "file_name")
    }
    names = _parse_coco_names(made, categories)
    crowds: dict[str, list[tuple[str, Box]]] = {key: [] for key in found}
    for annotation, place in zip(annotations, name_places("annotation", annotations), strict=True):
        try:
            key = _find_reference(annotation, "image", found, "there is no image")
            desc = names[
                _find_reference(annotation, "category", names, "no category with a name has the id")
            ]
            kind = crowds if _is_crowd(annotation) else found
            kind[key].append((desc, _parse_coco_box(made, annotation, polygons)))
        except FaultError as fault:
            made.fault(fault, place)
    return found, crowds


def _index_by_id(
    made: ImportedData, kind: str, entries: Sequence[Any], name: str
) -> dict[str, Any]:
    """Images or categories by their ids. Notes a fault for each without an id, or with the id of
    another."""
    found, first = dict[str, Any](), dict[str, int]()
    for number, each in enumerate(entries, 1):
        key = _normalise_id(each.get("id"))
        if key is None or key in found:
            here = f"{kind} number {number}, {short(each.get(name))}"
            what = f"the id {short(each.get('id'))}" if each.get("id") is not None else "no id"
            if key is not None:
                what = f"its id {short(each['id'])} is also that of {kind} number {first[key]}"
            made.fault(FaultError(what, f"give every {kind} its own id, a number or a text"), here)
        else:
            found[key], first[key] = each, number
    return found


def _parse_coco_names(made: ImportedData, categories: Sequence[Any]) -> dict[str, str]:
    """The names of categories, by their ids; one without a name is a fault only if an annotation
    uses it."""
    names = {}
    for key, category in _index_by_id(made, "category", categories, "name").items():
        name = category.get("name")
        if isinstance(name, str) and name.strip():
            names[key] = name.strip()
            try:
                clean_name(name)
            except FaultError as fault:
                made.fault(fault, f"category {short(category['id'])}")
    return names


def _find_reference(
    annotation: dict[str, Any], kind: str, known: Container[str], missing: str
) -> str:
    """The key of the image or category that an annotation refers to. Raises ``FaultError``."""
    field_name = f"{kind}_id"
    value = annotation.get(field_name)
    if value is None:
        raise FaultError(f"no {field_name}", f"give it the id of its {kind}")
    key = _normalise_id(value)
    if key is None or key not in known:
        raise FaultError(f"{missing} {short(value)}", f"fix its {field_name}")
    return key


def _is_crowd(annotation: dict[str, Any]) -> bool:
    told = annotation.get("iscrowd")
    if told is not None and told not in (0, 1):
        raise FaultError(f"iscrowd {short(told)}", "write 0 or 1")
    return bool(told)


def _parse_coco_box(made: ImportedData, annotation: dict[str, Any], polygons: bool) -> Box:
    """The box of an annotation, or the box around its polygons if it has none. Raises
    ``FaultError``."""
    box = annotation.get("bbox")
    around = None if box else _bound_polygons(annotation.get("segmentation"))
    if around:
        if not polygons:
            raise FaultError("a segmentation and no bbox", POLYGONS_REMEDY)
        made.counts[POLYGON] += 1
        return around
    numbers = [parse_number(each) for each in box] if isinstance(box, list) else []
    if len(numbers) != 4 or None in numbers:
        raise FaultError(f"bbox {short(box)}", "write [x, y, width, height]")
    x, y, width, height = (each or 0.0 for each in numbers)
    return x, y, x + width, y + height


def _bound_polygons(segmentation: Any) -> Box | None:
    """The box around polygons, each [x1, y1, x2, y2, ...]; None if they are not polygons."""
    if not isinstance(segmentation, list) or not segmentation:
        return None
    points = list[tuple[float, float]]()
    for part in segmentation:
        numbers = [parse_number(each) for each in part] if isinstance(part, list) else []
        if len(numbers) < 6 or len(numbers) % 2 or None in numbers:
            return None
        sound = [number or 0.0 for number in numbers]
        points += zip(sound[::2], sound[1::2], strict=True)
    return bound_points(points)


def bound_points(points: Sequence[tuple[float, float]]) -> Box:
    """The smallest box around ``points``, rounded to thousandths of a pixel."""
    across, down = ([round(point[axis], 3) for point in points] for axis in (0, 1))
    return min(across), min(down), max(across), max(down)


def find_size(name: Any, folder: Path, width: int | None, height: int | None) -> tuple[int, int]:
    """The size (width, height) of the picture ``name`` as it is shown, upright. Raises
    ``FaultError`` if a size is annotated and differs."""
    path, shown = upright_picture_named(name, folder)
    told = (width, height)
    if told != (None, None) and told != shown:
        what = f"annotated as {width} x {height}, but {path} shows {shown[0]} x {shown[1]}"
        raise FaultError(what, "put the picture that was annotated there, upright")
    return shown


def _normalise_id(value: Any) -> str | None:
    """A text for an id that is a number or a text, such that equal ids give equal texts (1 and 1.0
    are equal); None if it is not an id."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        return None
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


def _parse_int(text: str | None) -> int:
    number = parse_number(text)
    return int(number) if number is not None else 0


def parse_number(value: Any) -> float | None:
    """``value`` as a number below 1e9 in size; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < 1e9 else None
