#!/usr/bin/env python3
"""Random small templates from a grammar, with what jinja2 makes of them.

usage: template_stress.py COUNT SEED OUT.json    then: test_tokenizer_template_fixtures OUT.json
       template_stress.py --fixture              writes tests/fixtures/template/random.json

Cases where jinja2's own limits, integers of more than 64 bits or addresses play in are left out.
"""

import pathlib
import random
import re
import sys
import warnings

from jinja_oracle import render, write
from template_constructs import VARIABLES

warnings.simplefilter("ignore")

NAMES = ["name", "text", "uni", "n", "neg", "f", "yes", "no", "nil", "nums", "words", "empty", "d", "users", "messages", "nested", "missing"]
STRINGS = ["''", "'a'", "'abc'", "'A b'", "' x '", "'é🎉'", "'a,b,,c'", "'12'", "'-3.5'", "'<b>&'", "'it\\'s'", "'x\\ny'", "'%s|%d'", "'{} {a}'", "'aXbXc'", "'ß'", "\"q'q\""]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "1.5", "0.1", "-2.5", "100", "1e3", "2.0"]
ATTRS = ["b", "a", "name", "age", "role", "content", "x", "l1", "items", "get", "tags", "0", "upper", "missing"]
FILTERS = ["length", "upper", "lower", "trim", "string", "int", "float", "abs", "round", "list", "first", "last", "sort", "reverse", "unique", "join", "join(', ')", "tojson", "tojson(indent=1)", "default('d')", "default('d', true)", "title", "capitalize", "replace('a', 'b')", "items", "dictsort", "map('string')", "map(attribute='name')", "select", "reject", "selectattr('active')", "rejectattr('active')", "sum", "min", "max", "indent(2)", "batch(2)", "slice(2)", "map('upper')", "select('string')", "reject('none')", "selectattr('role', 'equalto', 'user')", "count", "safe", "e", "wordcount", "groupby('age')", "center(9)", "truncate(8)", "map('length')", "sort(reverse=true)", "dictsort(reverse=true)", "round(1)", "int(5)", "d(1)", "attr('b')", "format(1)", "map('tojson')", "unique(true)", "sort(attribute='name')"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "false", "odd", "even", "divisibleby 2", "divisibleby(3)", "in nums", "in 'abc'", "eq 1", "ne 'a'", "lt 3", "gt 0", "lower", "upper", "callable", "sameas none", "escaped", "filter", "in d"]
METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip('c')", "split()", "split(',')", "split('X', 1)", "rsplit(',', 1)", "splitlines()", "title()", "capitalize()", "startswith('a')", "endswith('c')", "replace('a', 'ZZ')", "find('b')", "rfind('X')", "count('a')", "join(words)", "format(1, a=2)", "isdigit()", "isalpha()", "get('a')", "get('zz', 5)", "items()", "keys()", "values()", "copy()", "index(1)", "index('a')", "count(1)", "partition(',')", "zfill(5)", "center(7, '*')", "ljust(4)", "removeprefix('a')", "append(1)", "swapcase()", "isupper()", "pop()"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class Grammar:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, items):
        return self.r.choice(items)

    def expr(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.15:
            return self.pick([self.pick(NAMES), self.pick(STRINGS), self.pick(NUMBERS), self.pick(["true", "false", "none", "[]", "{}", "()"]), self.pick(NAMES)])
        sub = lambda: self.expr(depth - 1)
        kind = r.randrange(14)
        if kind == 0:
            return f"{sub()} {self.pick(BINARY)} {sub()}"
        if kind == 1:
            return f"({sub()}) {self.pick(BINARY)} ({sub()})"
        if kind in (2, 3, 4):
            return f"({sub()})|{self.pick(FILTERS)}"
        if kind == 5:
            return f"({sub()}) is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind in (6, 7):
            return f"({sub()}).{self.pick(METHODS)}"
        if kind == 8:
            return f"({sub()}).{self.pick(ATTRS)}"
        if kind == 9:
            return f"({sub()})[{self.pick([sub(), self.pick(NUMBERS[:6]), repr(self.pick(ATTRS))])}]"
        if kind == 10:
            part = lambda: self.pick(["", "", "1", "-1", "2", "0", "-3", "10"])
            # Of a literal, jinja2 folds a slice that makes no sense to an undefined value.
            return f"{self.pick(NAMES[:-1])}[{part()}:{part()}{self.pick(['', ':', ':2', ':-1', ':-2'])}]"
        if kind == 11:
            return f"({sub()} if {sub()}{self.pick(['', ' else ' + sub()])})"
        if kind == 12:
            return self.pick([f"[{sub()}, {sub()}]", f"({sub()}, {sub()})", f"{{'k': {sub()}, 'a': {sub()}}}", f"[{sub()}]", f"dict(a={sub()})"])
        return self.pick([f"not {sub()}", f"-{sub()}", f"{self.pick(NAMES)}|{self.pick(FILTERS)}|{self.pick(FILTERS)}", f"{self.pick(NAMES)}.{self.pick(METHODS)}", f"range({self.pick(NUMBERS[:6])})"])

    def open(self):
        return self.pick(["{%", "{%", "{%", "{%-", "{%+"])

    def close(self):
        return self.pick(["%}", "%}", "%}", "-%}", "+%}"])

    def tag(self, text):
        return f"{self.open()} {text} {self.close()}"

    def data(self):
        return self.pick(["", "x", " y ", "\n", "  \n  ", "\n\n", " z\n", "\t", "a\n  ", "{", "}}"])

    def body(self, depth):
        return "".join(self.statement(depth) + self.data() for _ in range(self.r.randrange(1, 3)))

    def statement(self, depth):
        r = self.r
        e = lambda: self.expr(2)
        if depth <= 0 or r.random() < 0.3:
            return self.pick(["{{ " + e() + " }}", "{{- " + e() + " -}}", "{{ " + self.pick(["x", "y", "i", "ns.v", "loop.index", "loop.last", "loop"]) + " }}", "{# c #}", "{#- c -#}"])
        kind = r.randrange(12)
        inner = lambda: self.data() + self.body(depth - 1)
        if kind in (0, 1):
            test = self.pick(["", "", " if i", " if i is string"])
            otherwise = self.pick(["", self.tag("else") + inner()])
            return self.tag(f"for i in {self.pick([e(), 'nums', 'words', 'd', 'users', 'range(3)'])}{test}") + inner() + otherwise + self.tag("endfor")
        if kind in (2, 3):
            branches = self.tag("elif " + e()) + inner() if r.random() < 0.4 else ""
            branches += self.tag("else") + inner() if r.random() < 0.4 else ""
            return self.tag("if " + e()) + inner() + branches + self.tag("endif")
        if kind in (4, 5):
            return self.tag(f"set {self.pick(['x', 'y', 'x', 'name'])} = {e()}")
        if kind == 6:
            return self.tag(f"set x{self.pick(['', '', '|upper', '|trim|length'])}") + inner() + self.tag("endset")
        if kind == 7:
            name = self.pick(["m", "m2"])
            call = self.pick(["", f"{{{{ {name}({e()}) }}}}", f"{{{{ {name}(1, y={e()}) }}}}"])
            return self.tag(f"macro {name}(x{self.pick(['', ', y=2', ', y=x'])})") + inner() + self.tag("endmacro") + call
        if kind == 8:
            return self.tag("filter " + self.pick(["upper", "trim", "replace('a', 'o')", "length"])) + inner() + self.tag("endfilter")
        if kind == 9:
            return self.tag(f"set ns = namespace(v={e()})") + inner() + self.tag("if ns") + self.tag(f"set ns.v = {e()}") + "{{ ns.v }}" + self.tag("endif")
        if kind == 10:
            return self.tag(f"with x = {e()}, y = x") + inner() + self.tag("endwith")
        return self.tag("for j in nums") + self.tag("if " + self.pick(["loop.index > 2", "j == 2", "j is odd", "loop.last"])) + self.tag(self.pick(["break", "continue"])) + self.tag("endif") + "{{ j }}" + inner() + self.tag("endfor")

    def template(self):
        if self.r.random() < 0.6:
            return "{{ " + self.expr(self.r.randrange(1, 5)) + " }}"
        return self.data() + self.body(3)


SKIP = re.compile(r"\d{19,}|dictview|out of memory|more than 4300 digits|maximum recursion|Exceeds the limit|too many statically nested|math range")


def cases(count, seed, longest=400):
    grammar = Grammar(seed)
    result = []
    while len(result) < count:
        source = grammar.template()
        if len(source) > longest:
            continue
        text, error = render(source, VARIABLES)
        if SKIP.search(text if text is not None else str(error)):
            continue
        if text is not None and len(text) > 3000:
            continue
        result.append({"template": source} if text is None else {"template": source, "output": text})
    return result


def main():
    if sys.argv[1] == "--fixture":
        found = cases(4000, 7, longest=220)
        # Errors come easily: keep one of eight.
        kept = [c for i, c in enumerate(found) if ("output" in c and len(c["output"]) < 300) or i % 8 == 0][:600]
        path = pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "fixtures" / "template" / "random.json"
        write(path, {"variables": VARIABLES, "cases": kept}, indent=0)
        print(len(kept), "cases,", sum("output" not in c for c in kept), "errors")
        return
    found = cases(int(sys.argv[1]), int(sys.argv[2]))
    write(sys.argv[3], {"variables": VARIABLES, "cases": found})
    print(len(found), "cases,", sum("output" not in c for c in found), "errors")


if __name__ == "__main__":
    main()
