import sys

# No module of the workspace takes the place of those that these lines need.
workspace = sys.path.pop(0)
import json, linecache, os, traceback

sys.path.insert(0, workspace)
given = json.loads("".join(sys.argv[1:]))
sys.argv = ["code"]
place = os.environ.pop("BELAY_OUTPUT")
code = given["code"]
names = {**given["context"], "__name__": "__main__", "__builtins__": __builtins__}
linecache.cache["code"] = (len(code), None, code.splitlines(True), "code")
try:
    exec(compile(code, "code", "exec"), names)
except SystemExit:
    raise
except BaseException as error:
    # Without the frame of these lines.
    traceback.print_exception(type(error), error, error.__traceback__.tb_next)
    sys.exit(1)
sys.stdout.flush()
try:
    line = json.dumps({"result": names.get("result")}, allow_nan=False, ensure_ascii=False).encode() + b"\n"
except (TypeError, ValueError, RecursionError) as error:
    sys.exit("`result` cannot be returned as JSON: %s" % error)
with open(place, "ab") as outputs:
    outputs.write(line)
