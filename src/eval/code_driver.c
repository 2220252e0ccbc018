/* The Python program that runs programs: it executes one as the main module, then sends the token.
 *
 * It gets, on one pipe: half of the token, two lengths (16 hexadecimal digits each), the program,
 * data, and the other half. It reads up to the data, and reads the other half only when the program
 * has come to its end without an exception; then it writes both to the result's descriptor, which
 * must contain nothing else but what the job asks for. So neither the program's text nor the
 * arguments, the environment or a file contain the token; sys.exit, os._exit and a dead process
 * send none; and whatever the program itself writes to that descriptor makes the verdict a failure.
 * A program that takes apart the driver that runs it can still forge the token: docs/code-runs.md.
 */
#include "eval/code_int.h"

const char code_driver[] =
    "def _run():\n"
    "    import os, sys\n"
    "    read, write, leave, hook = os.read, os.write, os._exit, sys.__excepthook__\n"
    "    def take(size):\n"
    "        parts = []\n"
    "        while size:\n"
    "            part = read(3, size)\n"
    "            if not part:\n"
    "                leave(3)\n"
    "            parts.append(part)\n"
    "            size -= len(part)\n"
    "        return b''.join(parts)\n"
    "    write(4, b'S')\n"
    "    half, size, more = take(32), int(take(16), 16), int(take(16), 16)\n"
    "    text, data, answer = take(size), take(more), ''\n"
    "    sys.path[:] = [path for path in sys.path if path]\n"
    "    sys.argv[:] = ['program.py']\n"
    "    names = sys.modules['__main__'].__dict__\n"
    "    del names['_run']\n"
    "    try:\n"
    "        exec(compile(text, 'program.py', 'exec', 0, True), names)\n"
    "        if data:\n"
    "            import json\n"
    "            reward = names['reward']\n"
    "            answer = '\\n'.join(repr(float(reward(item['prompt'], item['completion'],\n"
    "                item['fields']))) for item in json.loads(data))\n"
    "    except BaseException as error:\n"
    "        trace = error.__traceback__\n"
    "        hook(type(error), error.with_traceback(trace and trace.tb_next), None)\n"
    "        leave(1)\n"
    "    for stream in (sys.stdout, sys.stderr):\n"
    "        try:\n"
    "            stream.flush()\n"
    "        except BaseException:\n"
    "            pass\n"
    "    answer = half + take(32) + answer.encode()\n"
    "    while answer:\n"
    "        answer = answer[write(4, answer):]\n"
    "    leave(0)\n"
    "_run()\n";
