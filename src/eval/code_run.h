/* Runs a Python program that a model wrote, in a child that can reach nothing.
 *
 * The child has its own session and, where the system allows them, user, pid, network, mount and
 * ipc namespaces. Landlock lets it read the interpreter and its libraries and write one empty
 * temporary folder; seccomp leaves it the system calls that a calculation needs: no sockets, no
 * signals to others, nothing of other processes. Resource limits bound time, memory, files and
 * processes. docs/code-runs.md says what each layer does, and what the verdict cannot prove.
 *
 * The evaluations of HumanEval's kind and the `python` reward call it. It may be called by any
 * number of threads at once, each with a child of its own. Nothing of a child outlives its call:
 * no process, no file, no descriptor.
 *
 * It fails closed. Without Landlock or seccomp nothing is run: AVO_ERROR_UNSUPPORTED, and a text
 * that says what is missing. Without namespaces (as in most containers) the program runs, and
 * `layers` says so.
 */
#ifndef AVO_EVAL_CODE_RUN_H
#define AVO_EVAL_CODE_RUN_H

#include "base/status.h"

#define CODE_OUTPUT_MAX  1024
#define CODE_LAYERS_MAX  160
#define CODE_PROGRAM_MAX ((size_t)16 << 20)

/* 0: the default. Each process has its own limits of CPU time and memory. */
typedef struct code_run_options {
    const avo_allocator *allocator; /* NULL: malloc */
    /* A path, or a name in /usr/local/bin, /usr/bin or /bin; NULL: python3. A script that starts
     * an interpreter is refused: the sandbox must know the program itself. */
    const char *interpreter;
    uint32_t cpu_seconds;   /* 5 */
    uint32_t wall_seconds;  /* 60: ends programs that wait, however busy the machine is */
    uint32_t processes_max; /* 16, threads included */
    uint64_t memory_bytes;  /* 1 GiB of address space for a process, and for all of them together
                               as much memory in use */
    uint64_t output_bytes;  /* 1 MB of what the program prints; the run ends when it prints more */
    /* Runs with the layers that there are. Without Landlock the program reads and writes every
     * file that this user can; without seccomp it opens connections and signals processes. */
    bool unsafe;
} code_run_options;

typedef enum code_outcome {
    CODE_PASSED,  /* the program's last line was reached */
    CODE_FAILED,  /* it raised, exited, died, or exceeded a limit */
    CODE_TIMEOUT, /* wall or CPU time */
} code_outcome;

typedef struct code_run_result {
    code_outcome outcome;
    char output[CODE_OUTPUT_MAX]; /* the end of what it printed, and why the run was ended */
    char layers[CODE_LAYERS_MAX]; /* which confinement it ran in */
    double seconds;
} code_run_result;

/* Runs `program` as the main module. AVO_OK: there is a verdict. It is CODE_PASSED only if the
 * child, after the program's end, sent the random token of this run; the exit status alone decides
 * nothing. An error means that no verdict is possible: AVO_ERROR_UNSUPPORTED (no Landlock, no
 * seccomp), AVO_ERROR_NOT_FOUND (no interpreter), AVO_ERROR_ARGUMENT, AVO_ERROR_LIMIT (program too
 * long) or AVO_ERROR_IO. */
AVO_MUST_USE avo_status code_run(const char *program, size_t bytes, const code_run_options *options,
                                 code_run_result *result, avo_error *error);

#endif
