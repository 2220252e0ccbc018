"""Templates of our own writing, one construct after the other, and the variables they see."""

VARIABLES = {
    "name": "World",
    "text": "  The quick <b>brown</b> fox\njumps \"over\" it's lazy dog  ",
    "uni": "Straße ÉCOLE ǆ ﬁn ΑΣ日本 🎉",
    "n": 7,
    "neg": -3,
    "f": 2.5,
    "yes": True,
    "no": False,
    "nil": None,
    "nums": [3, 1, 2, 10, -4],
    "words": ["banana", "Apple", "cherry", "apple"],
    "empty": [],
    "d": {"b": 1, "a": [1, 2, {"x": None}], "C": "é\"\\\n\t\u0001", "items": 5},
    "users": [
        {"name": "Zoe", "age": 31, "tags": ["x", "y"], "active": True},
        {"name": "adam", "age": 25, "tags": [], "active": False},
        {"name": "Bob", "age": 31, "active": True},
    ],
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None},
    ],
    "nested": {"l1": {"l2": {"l3": "deep"}}, "list": [[1, 2], [3, [4]]]},
}

CONSTRUCTS = []


def add(text):
    """One template per line; lines that begin with '%%' begin a template of several lines."""
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        if lines[i].startswith("%%"):
            end = lines.index("%%end", i)
            CONSTRUCTS.append("\n".join(lines[i + 1 : end]) + "\n")
            i = end + 1
        else:
            if lines[i].strip():
                CONSTRUCTS.append(lines[i])
            i += 1


# Literals, printing, operators.
add(r"""
{{ 1 }} {{ 1.0 }} {{ -1 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }}
{{ 0.1 + 0.2 }} {{ 1/3 }} {{ 2/1 }} {{ 1e100 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }} {{ -0.0 }} {{ 100.0 }} {{ 0.0001 }} {{ 0.00001 }}
{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }} {{ undefinedthing }}|
{{ 'a' "b" 'c' }} {{ 'it\'s' }} {{ "q\"q" }} {{ 'tab\tnl\nx\\y' }} {{ '\x41\u00e9\U0001F389\101\e\q' }} {{ 'a\
b' }}
{{ [1, 'a', none, true, 1.5, [2], (3,), {}, {'k': 'v'}] }} {{ () }} {{ (1,) }} {{ (1, 2) }} {{ 1, 2 }} {{ [] }} {{ {} }} {{ {'a': 1, 'b': [1]} }}
{{ ['it\'s', "a\"b", 'both\'"', 'é', '\n\t\\', '\x00\x7f\x80\u200b\u2028'] }}
{{ {1: 'a', 2.5: 'b', none: 'c', true: 'd', (1, 2): 'e'} }} {{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {'a': 1, 'b': 2, 'a': 3} }}
{{ 7 + 2 }} {{ 7 - 2 }} {{ 7 * 2 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ 7 % 2 }} {{ 7 ** 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ (1 + 2) * 3 }} {{ 2 ** 0.5 }} {{ 10 // 3.0 }} {{ true + true }} {{ 1 - true }} {{ 5 % 3.5 }} {{ -n }} {{ +n }} {{ - -n }} {{ -f }}
{{ 'ab' + 'cd' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'x' * 0 }} {{ 'x' * -1 }} {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }} {{ (0,) * 3 }}
{{ 1 ~ 2 ~ 'x' ~ none ~ true ~ 1.5 ~ [1] ~ undefinedthing }} {{ 'a' ~ 1 + 2 }} {{ 1 + 2 ~ 3 }}
{{ 1 < 2 }} {{ 1 <= 1 }} {{ 2 > 1 }} {{ 1 >= 2 }} {{ 1 == 1.0 }} {{ 1 != 2 }} {{ 'a' < 'b' }} {{ 'a' == 'A' }} {{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }} {{ true == 1 }} {{ none == false }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 < 2 > 0 == false }}
{{ 'a' in 'abc' }} {{ 'd' not in 'abc' }} {{ 1 in [1, 2] }} {{ 'b' in d }} {{ 'zz' in d }} {{ 1.0 in [1] }} {{ none in [none] }} {{ '' in 'abc' }} {{ 3 in range(5) }} {{ not 1 in [1] }} {{ 'x' in undefinedthing }}
{{ true and 1 }} {{ 0 and 1 }} {{ '' or 'x' }} {{ none or false or 0 or [] }} {{ 1 and 2 and 3 }} {{ not 1 }} {{ not '' }} {{ not not 'a' }} {{ 1 or undefinedthing.x }} {{ true and not false or false }}
{{ 'yes' if yes else 'no' }} {{ 'yes' if no else 'no' }} {{ 'yes' if no }}| {{ 1 if no else 2 if no else 3 }} {{ (1 if yes) + 1 }} {{ [1 if yes else 2, 3] }}
{{ 9223372036854775807 }} {{ -9223372036854775807 }} {{ 4611686018427387904 * 1 }} {{ 3037000499 * 3037000499 }}
{{ 1 == 'a' }} {{ 'a' != 1 }} {{ [] == {} }} {{ {} == {} }} {{ {'a': [1]} == {'a': [1]} }} {{ {'a': 1} == {'a': 2} }} {{ undefinedthing == undefinedother }} {{ undefinedthing == none }}
""")
# Errors.
add(r"""
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ none + 1 }}
{{ [1] + (2,) }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ 0 ** -1 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ {} < {} }}
{{ 1 in 5 }}
{{ 1 in 'abc' }}
{{ [] in {} }}
{{ {[]: 1} }}
{{ undefinedthing.x }}
{{ undefinedthing['x'] }}
{{ undefinedthing + 1 }}
{{ undefinedthing() }}
{{ undefinedthing < 1 }}
{{ -undefinedthing }}
{{ -'a' }}
{{ name.nothing.more }}
{{ d.nothing.more }}
{{ none.x.y }}
{{ n() }}
{{ name() }}
{{ 'a'|nosuchfilter }}
{{ 1 is nosuchtest }}
{{ 'a' - 'b' }}
{{ 'a' * 'b' }}
{{ 'a' * 1.5 }}
{{ nums.append(1) }}
{{ nums.pop() }}
{{ d.update({}) }}
{{ d.pop('a') }}
{{ d.setdefault('q', 1) }}
{{ raise_exception('that\'s wrong: ' + name) }}
{{ 'x' }}{% for m in messages %}{% if m.role == 'user' %}{{ raise_exception('role ' ~ m.role) }}{% endif %}{% endfor %}
{% if 1 %}
{% endif %}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% set a, b = (1,) %}
{% set n.x = 1 %}
{% set undefinedthing.x = 1 %}
{% set 1 = 2 %}
{% set none = 2 %}
{% set a[0] = 1 %}
{% set loop = 1 %}{{ loop }}
{% for x in [1] %}{% set loop = 2 %}{% endfor %}
{% unknown %}
{% do x %}
{% include 'x' %}
{% extends 'x' %}
{% import 'x' as y %}
{% from 'x' import y %}
{% break %}
{% continue %}
{% macro m() %}{% break %}{% endmacro %}
{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for x in [1] %}{% else %}{% break %}{% endfor %}
{% endfor %}
{% for x in [1] %}
{% for x in [1] %}{% endif %}
{{ 1
{{ 1 }
{% if 1 }
{# no end
{{ (1 }}
{{ [1 }}
{{ 1) }}
{{ 'abc }}
{{ 1 2 }}
{{ }}
{{ a b }}
{{ 1 + }}
{{ * }}
{{ a.}}
{{ a[}}
{{ f(a=1, 2) }}
{{ dict(a=1, a=2) }}
{{ dict(**{'a': 1}, b=2) }}
{% macro m(a, a) %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{{ range(1000000)|length }}
{{ range(1, 5, 0)|list }}
{{ range('a') }}
{{ range() }}
{{ 'a'.nosuch() }}
{{ [].index(1) }}
{{ 'abc'.index('z') }}
{{ ','.join([1]) }}
{{ 'a'.split('') }}
{{ 'a'.replace('a') }}
{{ 5|length }}
{{ none|length }}
{{ d|dictsort(by='x') }}
{{ nums|sort(attribute='x')|list }}
{{ [1, 'a']|sort }}
{{ 'a'|abs }}
{{ undefinedthing|tojson }}
{{ [range]|tojson }}
{{ {(1,2): 3}|tojson }}
{{ 'x' is divisibleby(2) }}
{{ 3 is divisibleby(0) }}
{{ '%d' % 'a' }}
{{ '%s %s' % (1,) }}
{{ '%s' % (1, 2) }}
{{ '{}'.format() }}
{{ '{a}'.format(b=1) }}
{{ '{'.format(1) }}
{{ 'a'|format(1) }}
{{ loop }}{{ loop.index }}
{{ undefinedthing|int }}
{{ undefinedthing|float }}
{{ namespace(_x=1) }}
{% set ns = namespace() %}{% set ns._y = 1 %}
{{ 1 is is }}
{{ 1|default }}{{ 1|default(2, 3, 4) }}
{{ nums|batch }}
{{ nums|map }}
{{ nums|map('nosuch')|list }}
{{ nums|select('nosuch')|list }}
{{ nums|selectattr }}{{ nums|selectattr()|list }}
{{ nums|join(attribute='x', d='y', z=1) }}
{{ d.items(1) }}
{{ d.get() }}
{{ name.upper(1) }}
{% filter nosuch %}{% endfilter %}
{% call 1 %}{% endcall %}
{% call name() %}{% endcall %}
{{ '\ud800' }}
""")
# Unknown names inside an if count only when they are reached.
add(r"""
{% if no %}{{ 1|nosuchfilter }}{% endif %}ok
{% if no %}{{ 1 is nosuchtest }}{% endif %}ok
{{ (1|nosuchfilter) if no else 'fine' }}
{{ 'fine' if yes else 1|nosuchfilter }}
{% if yes %}{{ 1|nosuchfilter }}{% endif %}ok
{% if no %}{% for x in [1] %}{{ 1|nosuchfilter }}{% endfor %}{% endif %}ok
{% if no %}{% set x %}{{ 1|nosuchfilter }}{% endset %}{% endif %}ok
{{ 1|nosuchfilter if 1|nosuchfilter else 2 }}
{% if no %}{{ [1|nosuchfilter, 2] }}{% elif 1|nosuchfilter %}{% endif %}
""")
# Attributes, items, slices.
add(r"""
{{ d.b }} {{ d['b'] }} {{ d.a[2].x }} {{ d.a[0] }} {{ d['a'][-1]['x'] }} {{ d.missing }}| {{ d['missing'] }}| {{ d.a.0 }} {{ nested.list.1.1.0 }} {{ nested.l1.l2.l3 }}
{{ d.items is callable }} {{ d['items'] }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 'dflt') }} {{ d.keys()|list }} {{ d.values()|list|length }} {{ d.items()|list|first }}
{{ nums[0] }} {{ nums[-1] }} {{ nums[99] }}| {{ nums['x'] }}| {{ name[0] }} {{ name[-1] }} {{ name[99] }}| {{ none['x'] }}| {{ none.x }}| {{ n.x }}| {{ n[0] }}| {{ nums[true] }} {{ nums[1.0] }}|
{{ nums[1:3] }} {{ nums[:2] }} {{ nums[2:] }} {{ nums[:] }} {{ nums[::-1] }} {{ nums[::2] }} {{ nums[-2:] }} {{ nums[:-2] }} {{ nums[4:1:-1] }} {{ nums[10:] }} {{ nums[-100:2] }} {{ nums[3:1] }} {{ nums[none:2] }} {{ nums[::-2] }} {{ (1,2,3)[1:] }}
{{ name[1:3] }} {{ name[::-1] }} {{ uni[0:6] }} {{ uni[::-1] }} {{ uni[-1] }} {{ uni[-2:] }} {{ uni[2:9:3] }} {{ ''[0:1] }}| {{ 'abc'[5:] }}| {{ 'abc'[-1:] }}
{{ n[1:2] }}| {{ d[1:2] }}|
{{ nums[0:'a'] }}
{{ undefinedthing[1:] }}
{{ d|attr('b') }}| {{ d|attr('get') is callable }}
{{ messages[0]['content'] }} {{ messages[0].content }} {{ messages[2].content }} {{ messages[-1]['role'] }} {{ messages[1:][0].role }}
{{ name.__class__ }}| {{ d.__init__ }}| {{ name._private }}|
{{ d[('a')] }} {{ {'a': {'b': 2}}['a']['b'] }} {{ [1,2,3][1] }} {{ 'abc'[1] }} {{ (4,5)[0] }} {{ {1: 'one'}[1] }} {{ {1: 'one'}[1.0] }}
""")
# Whitespace.
add("""
%%
  {% if yes %}
    a
  {% endif %}
b
%%end
%%
x
  {%- if yes -%}
    a
  {%- endif -%}
y
%%end
%%
  {%+ if yes +%}
    a
  {%+ endif +%}

b
%%end
%%
{# comment #}
a {# inline #} b
  {# own line #}
c {#- tight -#} d
   {#+ kept +#}
e
%%end
%%
{{ name }}
{{- name }}
  {{ name -}}
  {{ name }}

  {{+ name }}
%%end
%%
{% raw %}{{ not }} {% parsed %} {# at all #}{% endraw %}
  {% raw %}
 keep
  {% endraw %}
x {%- raw -%}  {{ y }}  {%- endraw -%}  z
%%end
%%
{% for x in [1, 2] %}
  {{ x }}
{% endfor %}

{% for x in [1, 2] -%}
  {{ x }}
{%- endfor %}

end
%%end
%%
a	{% if yes %} b {% endif %}	c
  {% if yes %}d{% endif %}  e
%%end
%%


{% set x = 1 %}


{{ x }}


%%end
%%
{%- set x = 1 -%}

text{{ ' ' }}
  text
%%end
%%
{% if yes
   and n > 1 %}
multi
{% endif %}{{ [1,
  2] }}
%%end
""")
CONSTRUCTS += [
    "a\r\nb\rc\n{{ 'x\r\ny' }}\r\n{% if yes %}\r\nd\r\n{% endif %}\r\n",
    "no newline at end",
    "one\n",
    "two\n\n",
    "",
    "\n",
    "{% if yes %}\n\nx{% endif %}",
    "\u00a0{%- if yes %}x{% endif %}\u2003{{- 1 }}",
    "\u00a0{% if yes %}x{% endif %}",
    "{{ '}}' }} {{ '%}' }} {% set x = '%}' %}{{ x }} {{ {'a': {'b': 1}}['a']}}",
    "{{ {'a': {}} }}",
    "{%if yes%}x{%endif%}{{1}}{{-1}}{{1-1}}",
    "{ { } } {a} %} }} #} { % {{ '{{' }} {{ \"{%\" }}",
    "{{ 1 -}}  \n  {{- 2 }} {{ 3 - 1 }}{{ 3 -1 }}{{ 3-1 }}",
]
# Statements.
add(r"""
{% for x in nums %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ x }} {% endfor %}
{% for x in nums %}{{ loop.previtem }},{{ loop.nextitem }};{{ loop.cycle('a', 'b') }};{{ loop.changed(x > 2) }} {% endfor %}
{% for x in [] %}x{% else %}none{% endfor %} {% for x in [1] %}x{% else %}none{% endfor %} {% for x in undefinedthing %}x{% else %}undef{% endfor %}
{% for x in [1,2] %}{% break %}{% else %}else{% endfor %}
{% for x in [1,2] %}{% continue %}{% else %}else{% endfor %}
{% for x in [1,2] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}else{% endfor %}
{% for x in nums if x > 1 %}{{ loop.index }}:{{ x }}:{{ loop.last }}:{{ loop.length }} {% endfor %}
{% for x in nums if x > 100 %}{{ x }}{% else %}nothing{% endfor %}
{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for k, v in d|dictsort %}{{ k }}{% endfor %} {% for k, v in d|items %}{{ k }}{% endfor %}
{% for c in 'aé🎉' %}[{{ c }}]{% endfor %} {% for i in range(3) %}{{ i }}{% endfor %} {% for i in range(5, 0, -2) %}{{ i }}{% endfor %}
{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 10 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1,2] %}{% for y in [1,2] %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}
{% for x in [1,2,3] %}{% set last = x %}{% endfor %}[{{ last }}] {% set v = 0 %}{% for x in [1,2] %}{% set v = v + x %}{{ v }}{% endfor %}{{ v }}
{% set ns = namespace(total=0, seen=[]) %}{% for x in nums %}{% set ns.total = ns.total + x %}{% set ns.seen = ns.seen + [x] %}{% endfor %}{{ ns.total }} {{ ns.seen }} {{ ns.missing }}| {{ ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns.a, ns.c = 5, 6 %}{{ ns.a }}{{ ns.c }} {{ namespace([('x', 1)]).x }}
{% set a = 1 %}{% set b, c = 2, 3 %}{% set (e, g) = [4, 5] %}{{ a }}{{ b }}{{ c }}{{ e }}{{ g }} {% set t = 1, 2 %}{{ t }} {% set t = 1, %}{{ t }}
{% set x %}block {{ name }}{% endset %}[{{ x }}] {% set x | upper | trim %}  up {{ name }} {% endset %}[{{ x }}] {% set y %}{% set inner = 1 %}{% endset %}[{{ inner }}]
{% if no %}a{% elif n > 5 %}b{% elif yes %}c{% else %}d{% endif %} {% if no %}a{% elif no %}b{% else %}c{% endif %} {% if undefinedthing %}a{% endif %} {% if 1, %}tuple{% endif %}
{% if [] %}1{% endif %}{% if [0] %}2{% endif %}{% if '' %}3{% endif %}{% if ' ' %}4{% endif %}{% if 0.0 %}5{% endif %}{% if {} %}6{% endif %}{% if none %}7{% endif %}{% if range(0) %}8{% endif %}{% if nums|select %}9{% endif %}{% if d.get %}10{% endif %}
{% macro greet(who, greeting='Hello', punct=greeting[0]) %}{{ greeting }}, {{ who }}{{ punct }}{% endmacro %}{{ greet('A') }} {{ greet('B', 'Yo') }} {{ greet(greeting='Hey', who='C') }} {{ greet('D', punct='!') }} {{ greet() }}
{% macro m() %}{{ varargs }} {{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }} {{ m() }} {% macro o(a) %}{{ a }}{{ varargs|length }}{% endmacro %}{{ o(1, 2, 3) }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% endmacro %}{{ fact(10) }} {{ fact.name }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}bold {{ name }}{% endcall %}
{% macro each(items) %}{% for i in items %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(item, i=0) each(['x', 'y']) %}{{ i }}{{ item }} {% endcall %}
{% macro a(caller=none) %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ a() }} {% call a() %}given{% endcall %}
{% macro outer() %}{% macro inner(x) %}({{ x }}{{ y }}){% endmacro %}{% set y = 2 %}{{ inner(1) }}{% endmacro %}{{ outer() }}
{% macro m() %}{{ late }}{% endmacro %}{% set late = 'set later' %}{{ m() }} {% set late = 'again' %}{{ m() }}
{% macro m() %}{{ name }}{% endmacro %}{{ m() }}{% set name = 'x' %}{{ m() }}
{% for i in [1] %}{{ name }}{% endfor %}{% set name = 'x' %}{{ name }}
{{ name }}{% for i in [1] %}{{ name }}{% endfor %}{% set name = 'x' %}{{ name }}
{% if no %}{% set name = 'x' %}{% endif %}{% for i in [1] %}{{ name }}{% endfor %}
{% for i in [1, 2] %}{{ name }}{% set name = i %}{{ name }}{% endfor %}{{ name }}
{% for i in [1, 2] %}{% set name = i %}{{ name }}{% endfor %}{{ name }}
{% macro m(name) %}{{ name }}{% set name = 'inner' %}{{ name }}{% endmacro %}{{ m('p') }}{{ name }}
{% set f = 1 %}{% macro m() %}{% set f = 2 %}{{ f }}{% endmacro %}{{ m() }}{{ f }}
{% filter upper %}abc {{ name }}{% set z = 1 %}{% endfilter %}{{ z }} {% filter replace('a', 'b')|upper %}banana{% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }} {% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }} {% set a = 5 %}{% with a = 6, b = a %}{{ a }}{{ b }}{% endwith %}
{% generation %}assistant {{ name }}{% set g = 1 %}{% endgeneration %}[{{ g }}]
{% print 1, 'a', name %} {% print name|upper %}
{% for item in [1, [2, [3, 4]], 5] recursive %}{% if item is iterable %}({{ loop(item) }}){% else %}{{ item }}@{{ loop.depth }}{{ loop.depth0 }}{% endif %}{% endfor %}
{% for x in [1,2,3] %}{% set out %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endset %}<{{ out }}>{% endfor %}
{% for x in nums %}{% if not loop.first %}, {% endif %}{{ x }}{% endfor %} {% for x in nums|reverse %}{{ x }}{{ loop.last }}{% endfor %} {% for x in nums|map('abs') %}{{ x }}{{ loop.length }}{% endfor %}
{% set g = nums|map('abs') %}{{ g|list }}{{ g|list }} {% set r = nums|reverse %}{{ r|join }}{{ r|join }} {% set i = d|items %}{{ i|list|length }}{{ i|list|length }}
{% for x in [1,2,3] if loop is defined %}{{ x }}{% else %}no loop in the test{% endfor %}
{{ loop is defined }} {% for x in [1] %}{{ loop is defined }}{{ loop|length }}{{ loop }}{% endfor %}
{% set x = namespace(i=0) %}{% for y in [1,2,3,4] if x.i < 2 %}{% set x.i = x.i + 1 %}{{ y }}{% endfor %}
{% for x in [1,2,3]: %}{{ x }}{% endfor %}{% if yes: %}colon{% endif %}
{% for a in [[1, 2], [3]] %}{% for b in a %}{{ b }}{% if not loop.last %},{% endif %}{% endfor %};{% endfor %}
{{ range(3) }} {{ range(1, 10, 3)|list }} {{ range(3)|length }} {{ range(5)[1] }} {{ range(5)[-1] }} {{ range(0) == range(5, 5) }} {{ range(10)|sum }}
{{ dict(a=1, b='x') }} {{ dict([('k', 1)]) }} {{ dict({'a': 1}, b=2) }} {{ dict() }}
{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y, %H:%M:%S %A %B %p %I %j %y %a %-d %-m %e %% %F %T %D %R %w %u %Z|') }}
{{ bos_token }} {{ eos_token }} {{ unk_token is defined }} {{ bos_token + name }} {% set bos_token = 'mine' %}{{ bos_token }}
{{ dict is callable }} {{ range is defined }} {{ joiner is defined }} {{ cycler is callable }} {{ lipsum is defined }} {{ raise_exception is defined }} {{ strftime_now is defined }} {{ namespace is defined }}
""")
# Tests.
add(r"""
{{ name is defined }} {{ zz is defined }} {{ zz is undefined }} {{ zz is not defined }} {{ d.q is defined }} {{ d.b is defined }} {{ nil is defined }} {{ nil is none }} {{ n is not none }}
{{ name is string }} {{ n is string }} {{ d is mapping }} {{ nums is mapping }} {{ nums is sequence }} {{ name is sequence }} {{ d is sequence }} {{ n is sequence }} {{ nums is iterable }} {{ name is iterable }} {{ n is iterable }} {{ d.items() is sequence }} {{ d.items() is iterable }} {{ d.items() is mapping }}
{{ n is number }} {{ f is number }} {{ yes is number }} {{ n is integer }} {{ yes is integer }} {{ f is integer }} {{ f is float }} {{ n is float }} {{ yes is boolean }} {{ n is boolean }} {{ yes is true }} {{ no is false }} {{ 1 is true }} {{ 0 is false }} {{ none is boolean }}
{{ 2 is even }} {{ 3 is odd }} {{ 2.0 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ -1 is odd }} {{ yes is odd }}
{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is le 1 }} {{ 2 is gt 1 }} {{ 2 is ge 3 }} {{ 2 is greaterthan 1 }} {{ 2 is lessthan 1 }} {{ 1 is in [1, 2] }} {{ 3 is not in [1] }} {{ 'a' is in 'abc' }}
{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'Abc' is lower }} {{ '123' is upper }} {{ 'É' is upper }} {{ none is sameas none }} {{ n is sameas n }} {{ d is sameas d }} {{ [] is sameas [] }} {{ true is sameas true }}
{{ name.upper is callable }} {{ n is callable }} {{ range is callable }} {{ zz is callable }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'x'|safe is escaped }} {{ 'x' is escaped }} {{ zz is iterable }} {{ zz is sequence }} {{ zz is string }} {{ zz is none }} {{ zz is mapping }}
{{ 1 is number and 2 is number }} {{ not 1 is string }} {{ 1 is not string }} {{ (1 is string) or true }} {{ 1 + 1 is even }} {{ name is string and name|length > 3 }}
{{ nums is defined and nums|length }} {{ 4 is divisibleby 2 and yes }} {{ 'x' is in d or 'b' is in d }} {{ d.b is defined and d.b is not none }} {{ 1 is eq(1) }} {{ [1] is eq [1] }}
{{ range(3) is sequence }} {{ range(3) is iterable }} {{ nums|map('abs') is iterable }} {{ nums|map('abs') is sequence }} {{ namespace() is mapping }} {{ namespace() is iterable }}
""")
# Filters.
add(r"""
{{ nums|length }} {{ name|length }} {{ uni|length }} {{ d|length }} {{ nums|count }} {{ ''|length }} {{ zz|length }} {{ range(4)|length }} {{ d.items()|length }}
{{ text|trim }}| {{ 'xxaxx'|trim('x') }} {{ 5|trim }} {{ name|upper }} {{ name|lower }} {{ uni|upper }} {{ uni|lower }} {{ uni|title }} {{ uni|capitalize }} {{ 'hELLO wORLD-foo (bar) it\'s'|title }} {{ 'hELLO'|capitalize }} {{ 'ΑΣ ΑΣΑ Σ'|lower }}
{{ n|string + 'x' }} {{ none|string }} {{ [1]|string }} {{ f|string }} {{ yes|string }} {{ zz|string }}|
{{ zz|default('d') }} {{ zz|d('d') }} {{ nil|default('d') }} {{ nil|default('d', true) }} {{ ''|default('d', boolean=true) }} {{ 0|default('d', true) }} {{ zz|default }}| {{ d.x|default(1) }} {{ zz|default(default_value=3) }}
{{ nums|join(', ') }} {{ nums|join }} {{ words|join('-') }} {{ users|join(', ', attribute='name') }} {{ 'abc'|join('.') }} {{ d|join(',') }} {{ []|join('x') }} {{ [none, true, 1.0, [1]]|join('|') }} {{ nums|join(1) }}
{{ nums|first }} {{ nums|last }} {{ name|first }} {{ name|last }} {{ []|first }}| {{ []|last }}| {{ d|first }} {{ d|last }} {{ range(5)|last }} {{ nums|map('abs')|first }}
{{ nums|sort }} {{ nums|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ users|sort(attribute='age')|map(attribute='name')|list }} {{ users|sort(attribute='age,name')|map(attribute='name')|list }} {{ users|sort(true, attribute='age')|map(attribute='name')|join }} {{ 'hello'|sort|join }}
{{ nums|min }} {{ nums|max }} {{ words|min }} {{ words|max }} {{ []|min }}| {{ users|max(attribute='age') }} {{ users|min(attribute='name') }} {{ nums|sum }} {{ users|sum(attribute='age') }} {{ [1.5, 2]|sum }} {{ nums|sum(start=100) }} {{ [[1], [2]]|sum(start=[]) }}
{{ words|unique|list }} {{ words|unique(case_sensitive=true)|list }} {{ [1, 1.0, true, 2]|unique|list }} {{ users|unique(attribute='age')|map(attribute='name')|list }}
{{ nums|reverse|list }} {{ name|reverse }} {{ uni|reverse }} {{ d|reverse|list }} {{ range(3)|reverse|list }} {{ nums|map('abs')|reverse }} {{ (1,2)|reverse|list }}
{{ nums|map('string')|list }} {{ words|map('upper')|join(' ') }} {{ users|map(attribute='name')|list }} {{ users|map(attribute='tags')|list }} {{ users|map(attribute='tags', default='none')|list }} {{ users|map(attribute='tags.0')|list }} {{ words|map('replace', 'a', 'o')|list }} {{ nums|map('default', 1)|list }} {{ []|map('upper')|list }} {{ zz|map('upper')|list }} {{ [[1,2]]|map(attribute=0)|list }}
{{ nums|select('odd')|list }} {{ nums|select|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ nums|reject('gt', 2)|list }} {{ [0, 1]|reject|list }} {{ nums|select('divisibleby', 2)|list }} {{ words|select('in', ['apple'])|list }} {{ words|select('==', 'apple')|list }}
{{ users|selectattr('active')|map(attribute='name')|list }} {{ users|rejectattr('active')|map(attribute='name')|list }} {{ users|selectattr('age', 'gt', 30)|list|length }} {{ users|selectattr('tags', 'defined')|list|length }} {{ messages|selectattr('role', 'equalto', 'user')|list }} {{ users|rejectattr('name', 'in', ['Zoe'])|map(attribute='age')|list }} {{ users|selectattr('nested.x', 'undefined')|list|length }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(reverse=true) }} {{ {'a': 2, 'b': 1}|dictsort(by='value') }} {{ {'a': 2, 'b': 1}|dictsort(false, 'value', true) }} {{ d|items|list }}
{{ nums|batch(2)|list }} {{ nums|batch(2, 'x')|list }} {{ nums|slice(2)|list }} {{ nums|slice(3, 'x')|list }} {{ users|groupby('age')|list }} {% for g in users|groupby('age') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %} {{ words|groupby(0)|map('first')|list }}
{{ nums|list }} {{ name|list }} {{ d|list }} {{ range(3)|list }} {{ zz|list }} {{ (1,2)|list }}
{{ 'a-b-c'|replace('-', '+') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'abc'|replace('', '-') }} {{ 12321|replace(2, 'x') }} {{ 'abc'|replace('z', 'y') }} {{ ''|replace('', 'x') }} {{ 'aaa'|replace('aa', 'b') }} {{ 'é🎉'|replace('', '.') }}
{{ '42'|int }} {{ ' 42 '|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '0x1f'|int(base=16) }} {{ '1f'|int(0, 16) }} {{ '101'|int(base=2) }} {{ 4.9|int }} {{ -4.9|int }} {{ true|int }} {{ none|int }} {{ [1]|int }} {{ '1_000'|int }} {{ ''|int }} {{ '+5'|int }} {{ '-5'|int }} {{ '- 5'|int }} {{ '1e3'|int }}
{{ '4.5'|float }} {{ 3|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ '1e3'|float }} {{ 'inf'|float }} {{ '-nan'|float }} {{ ' 2.5 '|float }} {{ '.5'|float }} {{ '5.'|float }} {{ '0x10'|float }} {{ none|float }}
{{ -5|abs }} {{ neg|abs }} {{ -2.5|abs }} {{ true|abs }} {{ 2.567|round }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 42|round }} {{ 1234|round(-2) }} {{ 1250|round(-2) }} {{ 2.675|round(2) }} {{ 42.55|round|int }} {{ -2.5|round }} {{ 7|round(1, 'ceil') }}
{{ text|indent }}| {{ 'a\nb\n\nc'|indent(2) }}| {{ 'a\nb\n\nc'|indent(2, true) }}| {{ 'a\nb\n\nc'|indent(2, true, true) }}| {{ 'a\nb'|indent('> ') }}| {{ 'a\n'|indent(first=true) }}| {{ ''|indent(2, true) }}| {{ 'a\r\nb'|indent }}|
{{ '<b>"\'&'|e }} {{ '<b>'|escape }} {{ '<b>'|safe }} {{ '<b>'|safe|e }} {{ '<b>'|e|e }} {{ '<b>'|forceescape|forceescape }} {{ '<b>'|e + '<i>' }} {{ '<i>' + '<b>'|safe }} {{ ('<b>'|safe)|upper }} {{ ('<b>'|safe) ~ '<i>' }} {{ [('<b>'|safe)] }} {{ ('<b>'|safe)[0:2] + '<' }} {{ ('<'|safe) * 2 + '<' }} {{ ' <'|safe|trim + '<' }} {{ ('<'|safe|replace('<', '>')) + '<' }} {{ ('<'|safe|string) + '<' }} {{ '<'|safe|length }}
{{ '%s-%s'|format(1, 'a') }} {{ '%(a)s'|format(a=5) }} {{ 'abc'|center(9) }}| {{ 'ab'|center(7) }}| {{ 'a b  c-d e_f'|wordcount }} {{ 'hello big world'|truncate(10) }} {{ 'hello big world'|truncate(10, true) }} {{ 'hello big world'|truncate(8, false, '…', 0) }} {{ 'short'|truncate(4) }}
{{ name|upper|lower|title|length }} {{ (nums|sort)[0] }} {{ nums|sort|first + 1 }} {{ -1|abs }} {{ (-1)|abs }} {{ 1.5|int + 1 }} {{ 'a' + 'b'|upper }} {{ ('a' + 'b')|upper }} {{ n|string|length }} {{ not name|length }} {{ 2 * 3|string }}
{{ nums|map('abs')|sort|join(',')|length }} {{ users|map(attribute='name')|map('lower')|sort|join('/') }} {{ d.a|map('string')|join(' ') }}
""")
# tojson.
add(r"""
{{ d|tojson }} {{ nums|tojson }} {{ name|tojson }} {{ nil|tojson }} {{ yes|tojson }} {{ f|tojson }} {{ n|tojson }} {{ []|tojson }} {{ {}|tojson }} {{ (1, 'a')|tojson }} {{ uni|tojson }} {{ text|tojson }}
{{ d|tojson(indent=2) }}
{{ d|tojson(indent=0) }} {{ d|tojson(indent='--') }} {{ [[], {}, [[]]]|tojson(indent=1) }}
{{ uni|tojson(ensure_ascii=true) }} {{ d|tojson(true) }} {{ d|tojson(sort_keys=true) }} {{ {'b': {'z': 1, 'a': 2}, 'a': 1}|tojson(sort_keys=true, indent=1) }}
{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(separators=[', ', '=']) }} {{ nums|tojson(separators=(' ', ':'), indent=2) }}
{{ {1: 'a', 1.5: 'b', none: 'c', false: 'd'}|tojson }} {{ {true: 1}|tojson }} {{ '\x00\x1f\x7f\u2028/<>&\'"'|tojson }} {{ 1e22|tojson }} {{ 1e-7|tojson }} {{ 'inf'|float|tojson }} {{ '\U0001F389\u00e9'|tojson(ensure_ascii=true) }}
{{ {'b': 1, 2: 3}|tojson(sort_keys=true) }}
{{ d|tojson|safe }} {{ d|tojson|length }} {{ 'x' + d|tojson }} {{ (d|tojson|safe) + '<' }}
{{ nums|map('tojson')|join(';') }} {{ messages|map('tojson')|join('\n') }}
{{ d.items()|list|tojson }}
{{ d.keys()|tojson }}
{{ nums|map('abs')|tojson }}
""")
# Methods.
add(r"""
{{ text.strip() }}| {{ text.lstrip() }}| {{ text.rstrip() }}| {{ 'xyabcyx'.strip('xy') }} {{ 'aab'.lstrip('a') }} {{ 'baa'.rstrip('a') }} {{ ' \n\t\u00a0\u2003x'.strip() }} {{ 'éaé'.strip('é') }} {{ 'abc'.strip('') }} {{ 'abc'.strip(none) }} {{ ''.strip() }}|
{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b '.split() }} {{ ' a  b  c '.split(none, 1) }} {{ ' a  b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a'.split(',') }} {{ ',a,'.split(',') }} {{ 'a<think>b</think>c'.split('</think>')[-1] }} {{ 'a--b--c'.rsplit('--') }} {{ 'aXXbXXc'.split('XX', maxsplit=1) }} {{ 'a b c'.split(sep=' ') }} {{ 'aaa'.rsplit('aa') }}
{{ 'a\nb\r\nc\rd\x0be\u2028f\n'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }} {{ ''.splitlines() }} {{ '\n\n'.splitlines(keepends=true) }}
{{ name.startswith('Wo') }} {{ name.endswith('ld') }} {{ name.startswith(('a', 'W')) }} {{ name.endswith(()) }} {{ name.startswith('or', 1) }} {{ name.startswith('o', 1, 2) }} {{ name.endswith('or', 0, 3) }} {{ ''.startswith('') }} {{ 'a'.startswith('', 5) }}
{{ name.upper() }} {{ name.lower() }} {{ 'hello world it\'s'.title() }} {{ 'hELLO'.capitalize() }} {{ uni.upper() }} {{ uni.title() }} {{ uni.capitalize() }} {{ uni.swapcase() }} {{ 'ﬁn'.capitalize() }} {{ 'ǆ'.title() }} {{ 'İ'.lower()|length }} {{ 'ŉ'.upper() }}
{{ 'a-b'.replace('-', '') }} {{ 'aaa'.replace('a', 'b', 1) }} {{ 'aaa'.replace('a', 'b', -1) }} {{ 'aaa'.replace('a', 'b', 0) }} {{ 'abc'.replace('', '.') }} {{ 'abc'.replace('', '.', 2) }} {{ ''.replace('', 'x') }} {{ 'a'.replace('a', '') }}|
{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('z') }} {{ 'abcabc'.index('b') }} {{ 'abcabc'.rindex('b') }} {{ 'abcabc'.count('bc') }} {{ 'aaaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abcabc'.find('a', 1) }} {{ 'abcabc'.find('c', 0, 2) }} {{ uni.find('日') }} {{ uni.rfind('日') }} {{ 'abc'.find('', 2) }} {{ 'abc'.find('', 9) }} {{ 'abc'.find('b', -2) }} {{ 'abcabc'.rfind('a', 0, 3) }} {{ 'abc'.rfind('') }}
{{ ','.join(words) }} {{ ''.join(['a', 'b']) }} {{ '-'.join('abc') }} {{ ', '.join(d) }} {{ ','.join([]) }}| {{ ', '.join(words|map('upper')) }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'x'.removesuffix('y') }}
{{ '12'.isdigit() }} {{ '1a'.isdigit() }} {{ ''.isdigit() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ 'ab'.isalpha() }} {{ 'éß'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' \t'.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ 'Ab Cd'.istitle() }} {{ 'Ab cd'.istitle() }} {{ 'aé'.isascii() }} {{ 'a\n'.isprintable() }} {{ ''.isascii() }}
{{ 'ab'.center(6) }}| {{ 'ab'.center(7, '*') }} {{ 'ab'.ljust(5, '.') }} {{ 'ab'.rjust(5) }} {{ '42'.zfill(5) }} {{ '-42'.zfill(6) }} {{ 'abc'.center(2) }} {{ 'a'.center(4, '-') }}
{{ 'a{}b{}'.format(1, 'x') }} {{ '{0} {1} {0}'.format('a', 'b') }} {{ '{name} {n}'.format(name='x', n=3) }} {{ '{0.name} {0[age]}'.format(users[0]) }} {{ '{a[0]}'.format(a=nums) }} {{ '{{}} {}'.format(1) }} {{ '{!r} {!s}'.format('a', 'b') }} {{ '{}'.format(none) }} {{ '{}'.format([1, 'a']) }}
{{ '{:5}|{:<5}|{:>5}|{:^5}|{:*^7}|{:05d}|{:+d}|{:,}|{:_}|{:x}|{:X}|{:#x}|{:o}|{:b}|{:.2f}|{:8.3f}|{:e}|{:g}|{:%}|{:.1%}|{:.3}|{:>6.2}|{:d}'.format('a', 'b', 'c', 'd', 'e', 42, 5, 1234567, 7654321, 255, 255, 255, 8, 5, 3.14159, 2.5, 12345.678, 0.0001, 0.5, 0.256, 'abcdef', 'xyz', 7) }}
{{ '{:5}|{:<5}|{:^5}|{:05}|{:.1f}|{:,.2f}|{:-5}|{: d}|{:5.1f}|{:<8}|{:08.2f}'.format(1, 2, 3, -4, 2.25, 12345.678, 6, 7, 2.05, 1.5, -3.14159) }}
{{ '%s %d %i %f %.2f %5d|%-5d|%05d %x %X %o %e %g %r %c %% %+d % d %5s|%-5s|%.2s' % ('a', 1, 2, 1.5, 2.345, 42, 42, 42, 255, 255, 8, 12345.678, 0.0001, 'q', 'z', 5, 6, 'ab', 'cd', 'xyz') }} {{ '%s' % 'one' }} {{ '%s' % [1, 2] }} {{ '%(a)s %(b)d' % {'a': 'x', 'b': 2} }} {{ '%d' % 3.99 }} {{ '%d' % true }} {{ '%s' % none }} {{ '%*d' % (5, 42) }} {{ '100%%' % () }}
{{ nums.index(10) }} {{ nums.count(1) }} {{ nums.copy() }} {{ (1, 2, 1).count(1) }} {{ (1, 2).index(2) }} {{ d.copy() == d }} {{ d.keys() }} {{ d.values() }} {{ d.items() }}
{{ d.get('a')[0] }} {{ d.get('nope') is none }} {{ d.get('nope', {}).get('x', 'deep') }} {{ (d.a|first) }} {{ messages[0].get('content', '') }} {{ messages[0].content.split(' ')[0] }} {{ 'b' in d.keys() }} {{ 1 in d.values() }} {{ ('b', 1) in d.items() }}
{{ nums.append is defined }} {{ d.update is defined }} {{ nums.append }}| {{ d.pop }}|
{{ name.nosuch }}| {{ name.upper is defined }} {{ d.upper is defined }} {{ nums.upper is defined }} {{ name.append is defined }}
{{ dict(*[[('a', 1)]], **{'b': 2}) }} {{ range(*[1, 4])|list }} {{ 'x'.join(*[['a', 'b']]) }} {{ '{}{a}'.format(*['p'], **{'a': 'q'}) }}
""")
# Things real templates do.
add("""
%%
{%- set ns = namespace(first=true, system='') -%}
{%- for message in messages -%}
    {%- if message['role'] == 'system' -%}
        {%- set ns.system = message['content'] -%}
    {%- endif -%}
{%- endfor -%}
{{- bos_token -}}
{%- for message in messages if message.role != 'system' %}
    {%- if message.role == 'user' %}
        {{- '<|user|>' + (ns.system + '\\n\\n' if ns.first and ns.system else '') + message.content | trim + '<|end|>' }}
        {%- set ns.first = false %}
    {%- elif message.role == 'assistant' %}
        {{- '<|assistant|>' ~ (message.content or '') ~ eos_token }}
    {%- else %}
        {{- raise_exception('Unknown role: ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
%%end
%%
{%- macro render(value, level=0) -%}
{%- if value is mapping -%}
{
{%- for k, v in value.items() %}
{{ '  ' * (level + 1) }}{{ k }}: {{ render(v, level + 1) }}
{%- endfor %}
{{ '  ' * level }}}
{%- elif value is iterable and value is not string -%}
[{% for v in value %}{{ render(v, level + 1) }}{{ ', ' if not loop.last }}{% endfor %}]
{%- else -%}
{{ value|tojson }}
{%- endif -%}
{%- endmacro -%}
{{ render(d) }}{{ render(nested) }}
%%end
%%
{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + '<|im_end|>' + '\\n' }}
{% endfor %}
%%end
%%
{%- set last = namespace(index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and not (message.content.startswith('<t>') and message.content.endswith('</t>')) %}
        {%- set last.index = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{{ last.index }}
%%end
""")
