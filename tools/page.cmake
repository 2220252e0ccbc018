# Writes the C file that holds web/ (src/server/page/page.h): the bytes by the assembler's .incbin, the
# type by the name, the ETag from the content. Run by the build whenever a file of web/ changed.
#
# usage: cmake -DFOLDER=…/web -DOUTPUT=…/page_files.c -P page.cmake
cmake_minimum_required(VERSION 3.22)

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT names)
set(bytes "")
set(rows "")
set(count 0)
foreach(name IN LISTS names)
    string(REGEX MATCH "[a-z]+$" suffix "${name}")
    if(NOT name MATCHES "^[a-z_]+\\.[a-z]+$" OR NOT DEFINED type_${suffix})
        message(FATAL_ERROR "web/${name}: want a name of small letters that ends in .html, .css, .js or .svg")
    endif()
    file(SIZE "${FOLDER}/${name}" size)
    file(SHA256 "${FOLDER}/${name}" digest)
    string(SUBSTRING ${digest} 0 32 digest)
    set(path "/${name}")
    if(name STREQUAL "index.html")
        set(path "/")
    endif()
    set(symbol page_bytes_${count})
    string(APPEND bytes "__asm__(\".section .rodata\\n.balign 16\\n.hidden ${symbol}\\n.global ${symbol}\\n\"\n"
                        "        \".type ${symbol}, @object\\n${symbol}:\\n.incbin \\\"${FOLDER}/${name}\\\"\\n.byte 0\\n\"\n"
                        "        \".size ${symbol}, . - ${symbol}\\n.previous\\n\");\n"
                        "extern const char ${symbol}[];\n")
    string(APPEND rows "    {\"${path}\", \"${type_${suffix}}\", {${symbol}, ${size}}, \"\\\"${digest}\\\"\"},\n")
    math(EXPR count "${count} + 1")
endforeach()

file(WRITE "${OUTPUT}" "/* Made by tools/page.cmake from web/. */\n#include \"server/page/page.h\"\n\n${bytes}\n"
    "const page_file page_files[] = {\n${rows}};\n"
    "const size_t page_file_count = sizeof page_files / sizeof page_files[0];\n")
