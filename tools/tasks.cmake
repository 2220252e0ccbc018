# Writes the C file that holds configs/tasks/ (src/cli/eval_files.h): the bytes by the assembler's
# .incbin, the name by the file's. Run by the build whenever a task changed.
#
# usage: cmake -DFOLDER=…/configs/tasks -DOUTPUT=…/task_files.c -P tasks.cmake
cmake_minimum_required(VERSION 3.22)

file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*.json)
list(SORT names)
set(bytes "")
set(rows "")
set(count 0)
foreach(name IN LISTS names)
    if(NOT name MATCHES "^[a-z0-9_]+\\.json$")
        message(FATAL_ERROR "configs/tasks/${name}: want a name of small letters, digits and _ that ends in .json")
    endif()
    file(SIZE "${FOLDER}/${name}" size)
    string(REGEX REPLACE "\\.json$" "" short "${name}")
    set(symbol task_bytes_${count})
    string(APPEND bytes "__asm__(\".section .rodata\\n.balign 16\\n.hidden ${symbol}\\n.global ${symbol}\\n\"\n"
                        "        \".type ${symbol}, @object\\n${symbol}:\\n.incbin \\\"${FOLDER}/${name}\\\"\\n.byte 0\\n\"\n"
                        "        \".size ${symbol}, . - ${symbol}\\n.previous\\n\");\n"
                        "extern const char ${symbol}[];\n")
    string(APPEND rows "    {\"${short}\", {${symbol}, ${size}}},\n")
    math(EXPR count "${count} + 1")
endforeach()

file(WRITE "${OUTPUT}" "/* Made by tools/tasks.cmake from configs/tasks/. */\n#include \"cli/eval_files.h\"\n\n${bytes}\n"
    "const eval_builtin eval_builtins[] = {\n${rows}};\n"
    "const size_t eval_builtin_count = sizeof eval_builtins / sizeof eval_builtins[0];\n")
