/* Between the files that run programs of others: the interpreter, the child, its pipes.
 *
 * code_run.c and reward_python.c describe a job; code_process.c starts the child (code_child.c)
 * and watches it (code_pipes.c). reward_command.c uses code_pipes.c for a process of its own.
 */
#ifndef AVO_EVAL_CODE_INT_H
#define AVO_EVAL_CODE_INT_H

#include "base/buffer.h"
#include "eval/code_run.h"

#include <linux/filter.h>
#include <sys/types.h>

#define CODE_PATH_MAX 4096

/* ---- code_interpreter.c ---- */

typedef struct code_interpreter {
    char path[CODE_PATH_MAX];         /* of the program itself, links resolved */
    char loader[256];                 /* that the kernel starts with it; empty: none */
    char libraries[2][CODE_PATH_MAX]; /* beside the folder of the program */
} code_interpreter;

AVO_MUST_USE avo_status code_interpreter_find(const char *name, code_interpreter *found,
                                              avo_error *error);

/* ---- code_layers.c ---- */

typedef struct code_layers {
    long landlock;                    /* ABI; below 1: none */
    const struct sock_fprog *seccomp; /* NULL: none */
} code_layers;

/* What the kernel has. Missing layers are an error that names them, unless `unsafe`. */
AVO_MUST_USE avo_status code_layers_find(bool unsafe, code_layers *layers, avo_error *error);
/* Rules that allow reading the interpreter and its libraries: a descriptor. */
AVO_MUST_USE avo_status code_layers_rules(const code_layers *layers,
                                          const code_interpreter *interpreter, int *rules,
                                          avo_error *error);

/* ---- code_filter.c ---- */

/* NULL: none was written for this processor. */
const struct sock_fprog *code_filter(void);
/* Forbids new processes; threads stay. Without a pid namespace nothing else would end a process
 * whose parent died when this process was killed. */
const struct sock_fprog *code_filter_processes(void);

/* ---- code_folder.c ---- */

typedef struct code_folder {
    char path[64];
    int descriptor; /* -1: there is none */
} code_folder;

AVO_MUST_USE avo_status code_folder_make(code_folder *folder, uid_t user, avo_error *error);
/* Whether the files in it exceed what a run may write. */
bool code_folder_is_full(const code_folder *folder);
void code_folder_remove(code_folder *folder);

/* ---- code_memory.c ---- */

/* Of a process and the processes below it, at most so many. Pages that a fork shares count for each
 * process. */
uint64_t code_memory_used(pid_t process, uint32_t processes_max);

/* ---- code_child.c ---- */

/* Descriptors of the child. */
enum { CODE_FD_INPUT = 3, CODE_FD_RESULT = 4, CODE_FD_STATUS = 5, CODE_FD_RULES = 6 };
/* The user and group of the program when this process runs as root. */
#define CODE_NOBODY            65534
#define CODE_FILE_BYTES        ((uint64_t)1 << 20) /* of one file */
#define CODE_FOLDER_BYTES      ((uint64_t)16 << 20)
#define CODE_FOLDER_FILES      256
#define CODE_FOLDER_FILESYSTEM "size=16m,nr_inodes=256,mode=0700"

/* What the child tells of its preparation, through CODE_FD_STATUS. */
typedef enum code_step {
    CODE_STEP_MOUNT, /* not fatal: the folder is then on the disk */
    CODE_STEP_DESCRIPTORS,
    CODE_STEP_USER,
    CODE_STEP_FOLDER,
    CODE_STEP_LIMITS,
    CODE_STEP_LANDLOCK,
    CODE_STEP_SECCOMP,
    CODE_STEP_EXECUTE,
} code_step;
typedef struct code_note {
    int32_t step, reason; /* errno */
} code_note;

/* All that the child needs, made before it exists: it allocates nothing. */
typedef struct code_child_plan {
    const char *path;
    char *const *arguments, *const *environment;
    const char *folder;
    int null, output, input, result, status;
    int rules;                                          /* Landlock; -1: none */
    uint64_t rights_known;                              /* to the kernel's ABI */
    const struct sock_fprog *filter, *filter_processes; /* the second without namespaces */
    bool namespaces;
    bool root; /* becomes CODE_NOBODY */
    uint64_t cpu_seconds, processes_max, memory_bytes;
} code_child_plan;

/* Runs between clone and exec, where only system calls are safe. */
_Noreturn void code_child(const code_child_plan *plan);

/* ---- code_pipes.c ---- */

#define CODE_PARTS_MAX 8

typedef enum code_end {
    CODE_END_PROCESS,  /* the process ended by itself */
    CODE_END_DEADLINE, /* the rest: it still runs */
    CODE_END_OUTPUT,   /* printed more than allowed */
    CODE_END_ANSWER,   /* answered more than allowed */
    CODE_END_TICK,     /* the callback said so */
    CODE_END_MEMORY,   /* there was none for the answer */
    CODE_END_FAULT,    /* polling failed */
} code_end;

/* The pipes of one child, as code_pipes_watch reads and writes them without ever blocking. */
typedef struct code_pipes {
    pid_t process;
    int descriptor;                    /* pidfd; -1: the kernel has none */
    int input, output, answer, status; /* our ends; -1: closed */
    text_view parts[CODE_PARTS_MAX];   /* what goes to `input`, in order; then it is closed */
    size_t part_count, part_at;        /* part_at: the first that is not written */
    char *tail;                        /* the end of what came from `output`, terminated */
    size_t tail_capacity, tail_bytes;
    uint64_t output_bytes, output_max;
    buffer *answers;    /* all that came from `answer` */
    code_note notes[4]; /* from `status` */
    size_t note_bytes;
    uint64_t deadline_ns;
    bool (*tick)(void *context); /* every 50 ms; false ends the run. May be NULL */
    void *context;
} code_pipes;

/* A pipe whose ends are closed on exec; `ours` does not block. */
AVO_MUST_USE avo_status code_pipe_open(int ends[2], int ours, avo_error *error);
void code_descriptor_close(int *descriptor);
code_end code_pipes_watch(code_pipes *pipes);
/* Reads what is in the pipes when the process has ended. */
code_end code_pipes_drain(code_pipes *pipes);
/* Appends a line to the tail. */
void code_pipes_say(code_pipes *pipes, const char *text);

/* ---- code_driver.c ---- */

/* Python, for -c. */
extern const char code_driver[];

/* ---- code_process.c ---- */

typedef struct code_job {
    text_view program;
    text_view data; /* empty: none */
    buffer *answer; /* what came behind the token; its limit holds */
} code_job;

/* Options with their defaults filled in, in bounds. */
AVO_MUST_USE avo_status code_options_check(const code_run_options *options,
                                           code_run_options *checked, avo_error *error);
AVO_MUST_USE avo_status code_process_run(const code_job *job, const code_run_options *options,
                                         code_run_result *result, avo_error *error);

#endif
