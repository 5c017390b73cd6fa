"""Prints the tasks of a workflow in WfCommons' archive as JSON: by each task's name, the names of the tasks that it depends on.

    tasks.py ARCHIVE WORKFLOW

The archive has each published workflow as a graph of networkx in a pickle. Nothing but plain values is taken from it, so networkx is not needed, and
no code of the archive runs. SRC and DST, which WfCommons has put before the first tasks and after the last, are left out.
"""

import hashlib
import json
import pickle
import sys
import tarfile

SHA256 = "b15a0b04c784fc91bf1a6188aa53cfe08daae788982f5aa3c4c79d08f8f1d734"
ADDED = {"SRC", "DST"}


class Graph:
    """Stands for the class of the graph: its attributes are all that is read."""


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module.startswith("networkx."):
            return Graph
        if (module, name) == ("builtins", "dict"):
            return dict
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a graph")


def main(archive, workflow):
    with open(archive, "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    if found != SHA256:
        sys.exit(f"{archive} has the SHA-256 {found} instead of {SHA256}: remove it")
    with tarfile.open(archive) as tar:
        names = [name for name in tar.getnames() if name.endswith(f"/{workflow}/base_graph.pickle")]
        if not names:
            sys.exit(f"{archive} has no workflow {workflow}")
        graph = Unpickler(tar.extractfile(names[0])).load()
    tasks = {task: [] for task in graph._node if task not in ADDED}
    for task, dependents in graph._adj.items():
        for dependent in dependents:
            if task not in ADDED and dependent not in ADDED:
                tasks[dependent].append(task)
    json.dump(tasks, sys.stdout)


main(*sys.argv[1:])
