"""KRaft's metadata log: its records, batches, files, and the image that they make.

    files, _others = files.find(["/copies/node1000"])
    log = files.read(files)
    folding.fold(log).image.topics

``records`` declares every record, ``batches`` cuts bytes into batches, ``files`` reads what lies on a node's disk,
``image`` folds records into states.
"""
