"""A detector that writes its boxes, taught by its own rollouts: ``loop.py`` is the table of
contents."""

from stageb.cli.commands import Loop, RunCommand, Tool

LOOP = Loop(
    summary="Teach a vision-language model to write the objects of images, from the truth and "
    "its own answers.",
    config="stageb.two_channel.config:TwoChannelConfig",
    fit="stageb.two_channel.loop:fit",
    check="stageb.two_channel.boxes.data:check",
    commands={
        "evaluate": RunCommand(
            "Measure a run's detector on labelled images.",
            "stageb.two_channel.commands.evaluate:main",
        ),
        "predict": RunCommand(
            "Box the pictures of a folder by a run's detector.",
            "stageb.two_channel.commands.predict:main",
        ),
    },
    lacks={
        "export": "a detector is not written as ONNX: it writes its boxes word by word, which "
        "takes a program around the network; take its checkpoint as it is, RUN/best (without val "
        "RUN/model), which transformers loads, or export what it finds: stageb predict RUN "
        "--images FOLDER --to FOLDER writes COCO, Label Studio and YOLO"
    },
    tools={
        "boxes": Tool(
            summary="Make data for detectors: from VOC, COCO, YOLO or Label Studio, or drawn.",
            run="stageb.two_channel.commands.boxes:main",
            needs=("PIL",),
            extra="images",
        )
    },
    needs=("PIL", "faster_coco_eval", "peft", "scipy"),
)
