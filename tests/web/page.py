"""The page in Debian's Chromium, against a server that does as it is told: asking, streaming,
stopping, branches, adapters, failures, what is kept, and everything by keyboard alone."""
import json
import threading
import unittest

import webdriver
from command import wait_until
from page_mock import Answer
from webdriver import CONTROL, ENTER, ESCAPE, SHIFT, TAB, UP

webdriver.skip_without_browser()

from page_world import World  # noqa: E402  (a browser is needed from here on)


class Asking(World):
    def test_an_answer_streams_and_says_its_figures(self):
        hold = threading.Event()
        self.say("Hello **there**", Answer("Good ", "morning", ".", hold=hold), wait=False)
        self.browser.wait("return document.querySelector('.growing .body')?.textContent === 'Good'")
        self.assertEqual(self.browser.find("#transcript").attribute("aria-busy"), "true")
        self.assertTrue(self.browser.find("#stop").shown)
        hold.set()
        self.finish()
        self.assertEqual(self.texts(), ["Hello **there**", "Good morning."])
        stats = self.browser.find(".assistant .stats").text
        self.assertRegex(stats, r"\d+ m?s to first token")
        self.assertIn("3 tokens", stats)
        body = self.mock.chats()[0]
        self.assertEqual(body["messages"], [{"role": "user", "content": "Hello **there**"}])
        self.assertEqual((body["model"], body["stream"], body["stream_options"]),
                         ("avocet-tiny", True, {"include_usage": True}))
        self.assertNotIn("temperature", body)
        self.assertIn("Answer complete", self.browser.run(
            "return document.getElementById('announce').textContent"))

    def test_figures_of_the_server_win(self):
        self.say("x", Answer("a", "b", usage={
            "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 8},
            "timings": {"first_token_ms": 5.0, "tokens_per_second": 87.25}}))
        self.assertIn("87.3 tokens/s", self.browser.find(".assistant .stats").text)
        tokens = self.browser.all(".assistant .stats span")[-1]
        self.assertEqual((tokens.text, tokens.attribute("title")),
                         ("40 tokens", "after 12 of the prompt, 8 of them from the cache"))

    def test_the_whole_path_is_sent(self):
        self.say("one", Answer("1"))
        self.say("two", Answer("2"))
        self.assertEqual([m["content"] for m in self.mock.chats()[1]["messages"]],
                         ["one", "1", "two"])
        self.assertEqual(self.browser.find("#title").text, "one")

    def test_stop_keeps_what_came_and_frees_the_server(self):
        gone = self.mock.gone
        self.say("tell", Answer(*["word "] * 2000, delay=0.01), wait=False)
        self.browser.wait("return document.querySelectorAll('.growing .body p').length > 0")
        self.browser.find("#stop").click()
        self.finish()
        self.assertIn("stopped", self.browser.find(".assistant .stats").text)
        self.assertTrue(self.texts(".assistant .body")[0].startswith("word word"))
        wait_until(lambda: self.mock.gone > gone, "the server to see the client leave")
        self.assertEqual(self.mock.gone, gone + 1)

    def test_regenerate_makes_a_second_version(self):
        self.say("roll", Answer("one"), Answer("two"))
        self.browser.find(".assistant .again").click()
        self.finish()
        self.assertEqual(self.texts(), ["roll", "two"])
        first, second = self.mock.chats()
        self.assertEqual(first["messages"], second["messages"])
        self.assertNotIn("temperature", first)
        self.assertEqual(second["temperature"], 0.8)
        self.assertIn("sampled: temperature 0.8", self.browser.find(".assistant .stats").text)
        self.browser.reload()
        self.browser.wait("return document.querySelector('.assistant .sampled')")
        self.assertEqual(self.browser.find(".assistant .branch span").text, "2/2")
        self.browser.find(".assistant .branch button").click()
        self.assertEqual(self.texts(), ["roll", "one"])
        self.say("next", Answer("3"))
        self.assertEqual([m["content"] for m in self.mock.chats()[2]["messages"]],
                         ["roll", "one", "next"])

    def test_regenerate_takes_the_next_seed_and_keeps_a_temperature(self):
        self.browser.find("#settings-open").click()
        for name, value in (("temperature", "0.3"), ("seed", "5")):
            self.browser.find(f"#s-{name}").type(value)
        self.browser.find("#settings-close").click()
        self.say("roll", Answer("one"), Answer("two"), Answer("three"))
        self.assertEqual(self.browser.all(".sampled"), [])
        for _ in range(2):
            self.browser.find(".assistant .again").click()
            self.finish()
        self.assertEqual([(body["temperature"], body["seed"]) for body in self.mock.chats()],
                         [(0.3, 5), (0.3, 6), (0.3, 7)])
        self.assertEqual(self.browser.find(".assistant .sampled").text, "sampled: seed 7")

    def test_editing_branches_and_the_old_one_stays(self):
        self.say("first", Answer("a"))
        self.say("second", Answer("b"), Answer("c"))
        self.browser.all(".user .edit")[0].click()
        box = self.browser.find(".editing textarea")
        self.assertEqual(box.property("value"), "first")
        box.clear()
        box.type("changed" + ENTER)
        self.finish()
        self.assertEqual(self.texts(), ["changed", "c"])
        self.assertEqual(self.mock.chats()[2]["messages"],
                         [{"role": "user", "content": "changed"}])
        self.browser.find(".user .branch button").click()
        self.assertEqual(self.texts(), ["first", "a", "second", "b"])

    def test_settings_go_with_the_request(self):
        self.browser.find("#settings-open").click()
        self.browser.find("#system").type("Be brief.")
        for name, value in (("temperature", "0.3"), ("top_p", "0.9"), ("top_k", "40"),
                            ("max_tokens", "77"), ("seed", "5")):
            self.browser.find(f"#s-{name}").type(value)
        self.browser.find("#settings-close").click()
        self.say("x", Answer("y"))
        body = self.mock.chats()[0]
        self.assertEqual({name: body[name] for name in
                          ("temperature", "top_p", "top_k", "max_tokens", "seed")},
                         {"temperature": 0.3, "top_p": 0.9, "top_k": 40, "max_tokens": 77,
                          "seed": 5})
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertIn("System prompt", self.browser.find("#settings-chip").text)

    def test_wrong_settings_are_marked_and_not_sent(self):
        self.browser.find("#settings-open").click()
        for name, value in (("temperature", "-1"), ("top_k", "2.5"), ("max_tokens", "0")):
            self.browser.find(f"#s-{name}").type(value)
            self.assertEqual(self.browser.find(f"#s-{name}").attribute("aria-invalid"), "true",
                             name)
        self.browser.find("#settings-close").click()
        self.say("x", Answer("y"))
        self.assertTrue({"temperature", "max_tokens"}.isdisjoint(self.mock.chats()[0]))
        self.assertNotEqual(self.mock.chats()[0].get("top_k"), 2.5)


class Adapters(World):
    def test_switching_and_mixing(self):
        options = self.texts("#model option")
        self.assertEqual(options, ["avocet-tiny", "poetry", "sql-helper"])
        self.browser.find("#model option[value=poetry]").click()
        self.say("one", Answer("1"))
        self.assertEqual(self.mock.chats()[0]["model"], "poetry")
        self.assertEqual(self.browser.find(".assistant").attribute("aria-label"),
                         "Answer of poetry")
        self.browser.find("#settings-open").click()
        self.browser.all(".mix-row input[type=checkbox]")[1].click()
        self.browser.run("const slider = document.getElementById('mix-weight-1');"
                         "slider.value = 0.5; slider.dispatchEvent(new Event('input'))")
        self.assertEqual(self.texts("#model option")[-1], "2 adapters")
        self.say("two", Answer("2"))
        body = self.mock.chats()[1]
        self.assertEqual((body["model"], body["adapters"]), ("avocet-tiny", [
            {"name": "poetry", "weight": 1}, {"name": "sql-helper", "weight": 0.5}]))
        self.browser.find("#model option[value=avocet-tiny]").click()
        self.say("three", Answer("3"))
        self.assertEqual(self.mock.chats()[2]["model"], "avocet-tiny")
        self.assertNotIn("adapters", self.mock.chats()[2])

    def test_loading_one(self):
        self.browser.find("#settings-open").click()
        self.browser.find(".settings summary").click()
        self.browser.find("#load-name").type("haiku")
        self.browser.find("#load-path").type("adapters/haiku" + ENTER)
        self.browser.wait("return document.querySelectorAll('#model option').length === 4")
        self.assertEqual(self.mock.bodies[-1], ("/v1/load_lora_adapter", {
            "lora_name": "haiku", "lora_path": "adapters/haiku"}))


class Failures(World):
    def failed(self, answer):
        self.say("x", answer)
        return self.browser.find(".assistant .error").text

    def test_in_words_with_retry(self):
        for answer, words in (
                (Answer(status=400, message="max_tokens: 9 is more than the 8 that are left"),
                 "Max_tokens: 9 is more than the 8 that are left."),
                (Answer(status=500, message=""), "The server failed (500)."),
                (Answer("half an ", "answer", cut=True), "before it was complete"),
                (Answer("half", error="the engine stopped"), "The engine stopped."),
                (Answer(raw=[b"data: {nonsense\n\n"]), "no answer"),
                (Answer(raw=[b"HTTP nonsense"]), "before it was complete")):
            self.browser.find("#new-chat").click()
            self.assertIn(words, self.failed(answer))
            self.mock.answers.append(Answer("good"))
            self.browser.find(".assistant .error button").click()
            self.finish()
            self.assertEqual(self.texts(".assistant .body"), ["good"])
            self.assertEqual(self.browser.all(".error"), [])

    def test_a_busy_server_says_when(self):
        said = self.failed(Answer(status=429, message="the queue is full",
                                  headers=[("Retry-After", "7")]))
        self.assertIn("The server is busy. The queue is full.", said)
        self.assertRegex(said, r"Free again in about [67] s\.")

    def test_a_key_is_asked_for_and_kept_for_the_tab(self):
        self.mock.key = "secret"
        self.open("/?again")
        self.browser.wait("return document.activeElement.id === 'key'")
        self.browser.find("#key").type("secret" + TAB)
        self.browser.wait("return document.querySelector('#server-state.good')")
        self.say("x", Answer("y"))
        self.assertEqual(self.texts(".assistant .body"), ["y"])
        self.assertEqual(self.browser.run("return [sessionStorage.getItem('avocet.key'), "
                                          "JSON.stringify(localStorage).includes('secret')]"),
                         ["secret", False])

    def test_pieces_cut_anywhere_are_put_together(self):
        def chunk(text, finish=None):
            return json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]},
                              ensure_ascii=False)
        stream = (": hello\r\n\r\ndata: " + chunk("Grüße, ") + "\r\n\r\nevent: x\ndata:" +
                  chunk("🐦 ") + "\n\ndata: " + chunk("Ende", "stop") +
                  "\n\ndata: [DONE]\n\n").encode()
        self.say("x", Answer(raw=[stream[i:i + 1] for i in range(len(stream))]))
        self.assertEqual(self.texts(".assistant .body"), ["Grüße, 🐦 Ende"])

    def test_a_server_that_comes_back_is_found(self):
        models, self.mock.models = self.mock.models, []
        self.open("/?none")
        self.assertEqual(self.browser.find("#server-text").text, "no model")
        self.mock.models = models
        self.browser.find("#server-state").click()
        self.browser.wait("return document.getElementById('server-text').textContent"
                          " === 'avocet-tiny'")


class Keeping(World):
    def test_reload_keeps_the_conversation(self):
        self.say("Remember *this*", Answer("**Always.**"))
        before = self.browser.run("return document.getElementById('transcript').innerText")
        self.browser.reload()
        self.browser.wait("return document.querySelectorAll('.message').length === 2")
        self.assertEqual(self.browser.run(
            "return document.getElementById('transcript').innerText"), before)
        self.assertEqual(self.texts(".assistant .body strong"), ["Always."])

    def test_a_half_answer_survives_a_reload(self):
        self.say("x", Answer(*["word "] * 3000, delay=0.005), wait=False)
        self.browser.wait(
            "return document.querySelector('.growing .body')?.textContent.length > 800")
        self.browser.reload()
        self.browser.wait("return document.querySelectorAll('.message').length === 2")
        self.assertIn("word word", self.texts(".assistant .body")[0])
        self.assertIn("not complete", self.browser.find(".assistant .stats").text)
        self.mock.answers.append(Answer("whole"))
        self.browser.find(".assistant .again").click()
        self.finish()
        self.assertEqual(self.texts(".assistant .body"), ["whole"])

    def test_several_rename_delete_undo(self):
        self.say("alpha", Answer("1"))
        self.browser.keys((CONTROL, "k"))
        self.assertEqual(self.texts(), [])
        self.say("beta", Answer("2"))
        self.assertEqual(self.texts(".conversations a"), ["beta", "alpha"])
        self.browser.move_to(self.browser.all(".conversations li")[1])
        self.browser.find("[aria-label='Rename alpha']").click()
        self.browser.keys((CONTROL, "a"), *"gamma", ENTER)
        self.assertEqual(self.texts(".conversations a"), ["beta", "gamma"])
        self.browser.all(".conversations a")[1].click()
        self.browser.wait("return document.getElementById('title').textContent === 'gamma'")
        self.assertEqual(self.texts(), ["alpha", "1"])
        self.browser.find("[aria-label='Delete gamma']").click()
        self.assertEqual((self.texts(".conversations a"), self.texts()), (["beta"], []))
        self.browser.find(".toast button").click()
        self.assertEqual(self.texts(".conversations a"), ["beta", "gamma"])

    def test_an_answer_goes_on_while_another_is_read(self):
        hold = threading.Event()
        self.say("slow", Answer("begun ", "and done", hold=hold), wait=False)
        self.browser.wait("return document.querySelector('.growing .body')?.textContent !== ''")
        self.browser.find("#new-chat").click()
        self.say("quick", Answer("quickly"))
        hold.set()
        self.browser.wait("return document.querySelectorAll('.busy').length === 0")
        self.browser.find(".conversations li:nth-child(2) a").click()
        self.browser.wait("return document.getElementById('title').textContent === 'slow'")
        self.assertEqual(self.texts(), ["slow", "begun and done"])

    def test_export_and_import(self):
        self.say("take me along", Answer("gladly"))
        exported = self.browser.run(
            "return import('/store.js').then((store) => store.exportConversations("
            "store.listConversations().map((head) => store.loadConversation(head.id))))")
        self.browser.run(
            "const file = new File([arguments[0]], 'x.json'); const all = new DataTransfer();"
            "all.items.add(file); const input = document.getElementById('import-file');"
            "input.files = all.files; input.dispatchEvent(new Event('change'))", exported)
        self.browser.wait("return document.querySelectorAll('.conversations li').length === 2")
        self.assertEqual(len({kept["id"] for kept in self.kept()}), 2)
        self.browser.run("location.hash = document.querySelectorAll('.conversations a')[1].hash")
        self.assertEqual(self.texts(), ["take me along", "gladly"])

    def test_damaged_storage_and_files_are_refused_quietly(self):
        bad = ["", "{", "null", "[]", '{"version":1}', '{"version":1,"id":"__proto__","title":"x"}',
               '{"version":1,"id":"bad","title":"x","nodes":{"a":{"id":"a","parent":"",'
               '"role":"system","text":"x"}},"chosen":{"":"a","a":"a"}}']
        for i, text in enumerate(bad):
            self.browser.run("localStorage.setItem('avocet.chat.bad' + arguments[0], arguments[1])",
                             i, text)
        self.browser.run("localStorage.setItem('avocet.settings', '{\"sampling\":{\"seed\":\"x\"},"
                         "\"mix\":[1],\"system\":7}')")
        self.open("/#/chat/bad6")
        self.say("still works", Answer("yes"))
        self.assertEqual(self.texts(), ["still works", "yes"])
        said = self.browser.run(
            "return import('/store.js').then((store) => arguments[0].map((text) => {"
            "try { return store.importConversations(text).length; }"
            "catch (error) { return error.message; }}))", bad)
        self.assertTrue(all(isinstance(text, str) for text in said), said)


class Keyboard(World):
    def test_everything_without_a_mouse(self):
        self.browser.run("document.activeElement.blur()")
        self.browser.keys("/")
        self.assertEqual(self.focus(), "prompt")
        self.mock.answers += [Answer("first"), Answer("second"), Answer("third")]
        self.browser.keys(*"line", (SHIFT, ENTER), *"two", ENTER)
        self.finish()
        self.assertEqual(self.mock.chats()[0]["messages"][0]["content"], "line\ntwo")
        self.assertEqual(self.focus(), "prompt")
        self.browser.keys(UP)
        self.assertEqual(self.focus(), "Edit the message")
        self.browser.keys(ESCAPE)
        self.assertEqual(self.focus(), "Edit and ask again")
        self.browser.keys(TAB, TAB, ENTER)  # copy the answer, another answer
        self.finish()
        self.assertEqual(self.texts(".assistant .body"), ["second"])
        self.browser.keys((CONTROL, ","))
        self.assertEqual(self.focus(), "settings-close")
        self.browser.keys(TAB, *"Be kind.", ESCAPE)
        self.assertEqual(self.focus(), "settings-open")
        self.browser.keys("/", *"go", ENTER)
        self.finish()
        self.assertEqual(self.mock.chats()[2]["messages"][0]["content"], "Be kind.")
        self.browser.keys((CONTROL, "k"))
        self.assertEqual((self.focus(), self.texts()), ("prompt", []))

    def test_escape_stops(self):
        self.say("x", Answer(*["word "] * 2000, delay=0.01), wait=False)
        self.browser.wait("return document.querySelectorAll('.growing .body p').length > 0")
        self.browser.keys(ESCAPE)
        self.finish()
        self.assertIn("stopped", self.browser.find(".assistant .stats").text)

    def test_the_list_of_shortcuts(self):
        self.browser.run("document.activeElement.blur()")
        self.browser.keys("?")
        self.assertTrue(self.browser.find("#shortcuts-dialog").shown)
        self.browser.keys(ENTER)
        self.assertFalse(self.browser.find("#shortcuts-dialog").shown)

    def test_every_control_can_be_reached_and_has_a_name(self):
        self.say("x", Answer("[a link](https://example.org)\n\n```c\nint x;\n```"))
        self.browser.find("#settings-open").click()
        nameless = self.browser.run(
            "return [...document.querySelectorAll("
            "'a, button, input, select, textarea, [tabindex]')].filter((node) =>"
            " node.checkVisibility() && !(node.getAttribute('aria-label') ||"
            " node.textContent.trim() || node.labels?.length || node.id === 'scroller'))"
            ".map((node) => node.outerHTML)")
        self.assertEqual(nameless, [])
        reached = set()
        self.browser.find("#settings-close").click()
        self.browser.run("document.activeElement.blur()")
        for _ in range(60):
            self.browser.keys(TAB)
            reached.add(self.focus())
        for name in ("new-chat", "theme", "shortcuts", "settings-open", "prompt", "model",
                     "settings-chip", "Copy the answer", "Another answer", "Edit and ask again",
                     "Copy the code", "Code, c", "Rename x", "Delete x"):
            self.assertIn(name, reached)

    def test_landmarks_and_language(self):
        seen = self.browser.run(
            "return [document.documentElement.lang, document.querySelectorAll('h1').length,"
            "[...document.querySelectorAll('main')]"
            ".filter((node) => node.checkVisibility()).length,"
            "document.querySelector('[role=log]').getAttribute('aria-live'),"
            "[...document.querySelectorAll('nav, aside, main')]"
            ".every((node) => node.getAttribute('aria-label'))]")
        self.assertEqual(seen, ["en", 1, 1, "polite", True])


if __name__ == "__main__":
    unittest.main(verbosity=2)
