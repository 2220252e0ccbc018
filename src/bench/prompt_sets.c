/* The texts of the prompt sets. "summarise" and "editing" copy from what they are given, "json"
 * answers by a schema, "chat", "code" and "story" invent, and "random" is the adversary: words that
 * mean nothing, continued at a temperature at which no lookup is right. */
#include "bench/prompts.h"

static const bench_set_text chat[BENCH_SET_SIZE] = {
    {"What should I pack for a weekend of hiking in the mountains in October?", NULL},
    {"My sourdough bread is dense and sour. What am I doing wrong?", NULL},
    {"Explain to a ten-year-old why the sky is blue and sunsets are red.", NULL},
    {"I have a job interview on Friday and I am nervous. How can I prepare in three days?", NULL},
    {"What is the difference between a savings account and a government bond?", NULL},
    {"Suggest three quiet hobbies for somebody who works at a computer all day, and say why each "
     "is good.",
     NULL},
    {"How do noise-cancelling headphones work?", NULL},
    {"My neighbour plays the drums at night. How do I talk to him without starting a fight?", NULL},
};

static const bench_set_text code[BENCH_SET_SIZE] = {
    {"Write a Python function that returns the n-th Fibonacci number without recursion, with a "
     "docstring and three tests.",
     NULL},
    {"Write a C function that reverses a singly linked list in place, and explain it line by line.",
     NULL},
    {"Write a SQL query that lists the five customers with the highest total of orders last year, "
     "from the tables customers(id, name) and orders(id, customer_id, total, placed_on).",
     NULL},
    {"Write a JavaScript class for a stack with push, pop, peek and size. Throw an error when an "
     "empty stack is popped.",
     NULL},
    {"Write a shell script that renames all .jpeg files in a folder to .jpg and prints how many "
     "there were.",
     NULL},
    {"Write a Python class BankAccount with deposit, withdraw and transfer, and raise ValueError "
     "for amounts that are not positive.",
     NULL},
    {"Find the bug and give the corrected program:\n\n"
     "def average(values):\n    total = 0\n    for i in range(1, len(values)):\n"
     "        total += values[i]\n    return total / len(values)\n\n"
     "print(average([2, 4, 6]))\n",
     NULL},
    {"Translate this Python function to C, with the same names:\n\n"
     "def count_words(text):\n    count = 0\n    inside = False\n    for letter in text:\n"
     "        if letter.isspace():\n            inside = False\n        elif not inside:\n"
     "            inside = True\n            count += 1\n    return count\n",
     NULL},
};

static const bench_set_text summarise[BENCH_SET_SIZE] = {
    {"Summarise the following text in three sentences, using its own words where possible.\n\n"
     "The lighthouse on Gull Point was built in 1861 after the wreck of the steamer Amelia, in "
     "which forty-one people drowned. Its tower is 32 metres high and made of granite that was cut "
     "on the mainland and brought over in small boats. For a hundred and six years a keeper lived "
     "there with his family, wound the clockwork of the lamp every four hours, and wrote the "
     "weather into a book three times a day. In 1967 the lamp became electric and the last keeper, "
     "Thomas Reed, moved to the village. The books he left are now used by climate researchers, "
     "because nobody else on that coast measured the temperature of the sea so often.",
     NULL},
    {"List the five most important facts of this report as bullet points, quoting the text.\n\n"
     "The city opened the new tram line on 3 May. It is 11.4 kilometres long, has 19 stops and "
     "connects the central station with the university hospital. A ride from end to end takes 27 "
     "minutes, eleven fewer than the bus that it replaces. Construction began four years ago and "
     "cost 214 million, 9 per cent more than planned, because a Roman cemetery was found under the "
     "market square. In the first month 38,000 people a day used the line; the city had expected "
     "30,000. Shops along the route report more customers, but residents of Mill Street complain "
     "about the noise in the tight curve behind the theatre.",
     NULL},
    {"Answer from the text only, in full sentences: who discovered the cave, when, and what was "
     "found in it?\n\n"
     "The cave below Karrow Hill was discovered on 12 August 1954 by Ines Valde, a schoolteacher "
     "who was looking for a lost goat. She crawled through an opening of sixty centimetres and "
     "found a hall in which, as she wrote later, the church of her village would have fitted with "
     "its tower. Archaeologists who came in the following year found bones of cave bears, hearths "
     "that are 14,000 years old, and on the northern wall the drawing of a running horse in red "
     "ochre. The drawing is closed to visitors today, but a copy can be seen in the town museum.",
     NULL},
    {"Give a short summary of this conversation and name who will do what until when.\n\n"
     "Anna: The release is planned for Thursday, but the installer still fails on older systems.\n"
     "Ben: I found the reason this morning. It needs a library that they do not have. I can link "
     "it statically and have a fixed installer by Tuesday evening.\n"
     "Anna: Good. Carla, can you test it on the three old machines on Wednesday?\n"
     "Carla: Yes, on Wednesday morning. I also finish the release notes by Tuesday.\n"
     "Anna: Then I write to the customers on Wednesday afternoon, and we release on Thursday at "
     "ten.",
     NULL},
    {"Summarise this product description in two sentences and then list all its numbers.\n\n"
     "The Fennwick 300 is a folding bicycle for people who take the train. It weighs 10.9 "
     "kilograms, folds in 12 seconds to a parcel of 58 by 56 by 27 centimetres, and carries riders "
     "of up to 110 kilograms. The frame is made of chromium steel and has a warranty of 10 years. "
     "Its hub has 5 gears, the brakes are discs, and the tyres have a diameter of 16 inches. A bag "
     "for the handlebar with a volume of 20 litres is included. The price is 1,290.",
     NULL},
    {"Repeat the main argument of each paragraph in one sentence.\n\n"
     "Cities plant trees because trees cool. A street with large crowns is up to four degrees "
     "cooler on a summer afternoon than one without, since leaves give shade and evaporate "
     "water.\n\n"
     "But young trees cool little. It takes about twenty years until a crown is large enough to "
     "shade a pavement, and in hard ground many trees die before that.\n\n"
     "So it is cheaper to keep old trees than to plant new ones. A city that protects the roots of "
     "its old trees when streets are repaired saves the water, the care and the years that their "
     "replacements would need.",
     NULL},
    {"Extract all names of people and places with what the text says about each of them.\n\n"
     "Mara Lindqvist grew up in Haverby, a fishing village on the island of Oster. At nineteen she "
     "moved to Torsund to study ship building with Professor Jakob Aalto, who had designed the "
     "ferries of the northern line. Together with her brother Nils Lindqvist she founded a yard in "
     "Haverby in 1998. Their first ship, the Silver Tern, sails between Torsund and Oster to this "
     "day. Nils Lindqvist left the yard in 2011 and is now the mayor of Haverby.",
     NULL},
    {"Summarise the recipe as a numbered list of steps and repeat all quantities exactly.\n\n"
     "For the lentil soup heat 2 tablespoons of olive oil in a large pot and fry 1 chopped onion, "
     "2 carrots and 2 sticks of celery for 8 minutes. Add 3 cloves of garlic, 1 teaspoon of cumin "
     "and half a teaspoon of smoked paprika and fry for 1 more minute. Add 250 grams of brown "
     "lentils, 400 grams of tinned tomatoes and 1.2 litres of vegetable stock. Bring to the boil, "
     "then simmer for 35 minutes with the lid half open. Season with salt and the juice of 1 "
     "lemon, and serve with parsley.",
     NULL},
};

/* Schemas as they are, without escapes. */
#define SCHEMA(...) #__VA_ARGS__
/* clang-format off */
static const char person_schema[] = SCHEMA({
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer"},
        "profession": {"type": "string", "maxLength": 40},
        "city": {"type": "string", "maxLength": 40}
    },
    "required": ["name", "age", "profession", "city"],
    "additionalProperties": false
});
static const char items_schema[] = SCHEMA({
    "type": "object",
    "properties": {"items": {"type": "array", "minItems": 4, "maxItems": 6, "items": {
        "type": "object",
        "properties": {
            "description": {"type": "string", "maxLength": 40},
            "quantity": {"type": "integer"},
            "unit_price": {"type": "number"},
            "currency": {"enum": ["EUR", "USD"]}
        },
        "required": ["description", "quantity", "unit_price", "currency"],
        "additionalProperties": false
    }}},
    "required": ["items"],
    "additionalProperties": false
});
static const char event_schema[] = SCHEMA({
    "type": "object",
    "properties": {
        "event_name": {"type": "string", "maxLength": 60},
        "start_date": {"type": "string", "maxLength": 20},
        "end_date": {"type": "string", "maxLength": 20},
        "location_name": {"type": "string", "maxLength": 60},
        "number_of_participants": {"type": "integer"},
        "registration_required": {"type": "boolean"}
    },
    "required": ["event_name", "start_date", "end_date", "location_name",
                 "number_of_participants", "registration_required"],
    "additionalProperties": false
});
/* clang-format on */

static const bench_set_text json[BENCH_SET_SIZE] = {
    {"Invent a person who lives by the sea. Answer as JSON.", person_schema},
    {"Extract the person: \"Dr. Helena Marsh, 52, has been a vet in Dunmore since 1999.\"",
     person_schema},
    {"Extract the person as JSON from: \"After school Piotr Zielinski, now 34, learned to build "
     "violins in Poznan, where he still has his workshop.\"",
     person_schema},
    {"Make a shopping list in JSON for a breakfast for six people.", items_schema},
    {"Turn this order into JSON: 12 boxes of screws at 3.20 EUR, 2 hammers at 14.50 EUR, 1 ladder "
     "at 89 EUR, 5 pairs of gloves at 6.75 EUR.",
     items_schema},
    {"Write an invoice in JSON for the repair of a bicycle, with parts and labour as items.",
     items_schema},
    {"Extract the event: \"The Harbour Jazz Days take place from 4 to 6 July 2025 in the Old "
     "Warehouse. 300 people can attend; please register.\"",
     event_schema},
    {"Invent a conference about bees and describe it as JSON.", event_schema},
};

static const bench_set_text editing[BENCH_SET_SIZE] = {
    {"Rewrite the text with \"Margaret\" instead of \"John\" and with the right pronouns. Change "
     "nothing else and print the whole text.\n\n"
     "John got up at five because he wanted to see the sun rise over the lake. He put on his boots "
     "and walked along the shore until he came to the old boat house. John sat down on the steps, "
     "opened his bag and took out the bread that he had baked himself. When the sun came up he "
     "thought of the summers that he had spent here with his sister, and of the boat that his "
     "father had built. Then John walked home, and nobody noticed that he had been away.",
     NULL},
    {"Correct the spelling mistakes and print the whole text.\n\n"
     "The libary will be closd on Monday because the floor in the reading room is beeing repaired. "
     "Books that are due on Monday can be returned on Tuesday without a fee. The childrens' corner "
     "moves to the second floor untill the end of March. Readers who have ordered books from other "
     "libraries recieve a message as soon as they arrive. We apologise for the noise and thank you "
     "for your patience.",
     NULL},
    {"Rename the variable \"tmp\" to \"difference\" and print the whole program again.\n\n"
     "def distance(first, second):\n    total = 0.0\n    for i in range(len(first)):\n"
     "        tmp = first[i] - second[i]\n        total += tmp * tmp\n    return total ** 0.5\n\n\n"
     "def nearest(point, candidates):\n    best = None\n    best_distance = None\n"
     "    for candidate in candidates:\n        tmp = distance(point, candidate)\n"
     "        if best is None or tmp < best_distance:\n            best = candidate\n"
     "            best_distance = tmp\n    return best\n",
     NULL},
    {"Change every price by adding 1, keep everything else, and print the whole list.\n\n"
     "- Tomato soup with basil: 6\n- Onion soup with cheese: 7\n- Green salad with walnuts: 8\n"
     "- Potato dumplings with mushrooms: 13\n- Trout with almonds and rice: 17\n"
     "- Roast chicken with lemon: 15\n- Pancakes with plum jam: 9\n- Baked apple with vanilla: 8\n",
     NULL},
    {"Add a closing sentence that thanks the reader, and otherwise repeat the letter word for "
     "word.\n\n"
     "Dear Mr Novak,\n\nwe have received your letter of 14 March about the broken window in the "
     "staircase. A glazier has been ordered and will come on Thursday between eight and ten "
     "o'clock. Please make sure that the door to the courtyard is open at that time. The repair "
     "costs you nothing, since the building is insured against damage by storms.\n\nKind regards,\n"
     "the house administration",
     NULL},
    {"Add a field \"email\" of type string to the class User, after \"name\", and print all of the "
     "code.\n\n"
     "class User:\n    def __init__(self, identifier, name, created):\n"
     "        self.identifier = identifier\n        self.name = name\n"
     "        self.created = created\n\n    def to_dict(self):\n        return dict(\n"
     "            identifier=self.identifier,\n            name=self.name,\n"
     "            created=self.created,\n        )\n\n    @classmethod\n"
     "    def from_dict(cls, data):\n"
     "        return cls(data['identifier'], data['name'], data['created'])\n",
     NULL},
    {"Put the text into the past tense and print all of it.\n\n"
     "The train leaves the station at six in the morning. An old man sits by the window and reads "
     "a newspaper. Opposite him a girl draws the houses that pass by. At every stop she looks up, "
     "counts the people who get in, and writes the number into a corner of the page. When the "
     "train crosses the river the man folds his newspaper and looks at the drawing. He smiles and "
     "gives her his pencil, because hers is too short.",
     NULL},
    {"Replace \"Monday\" by \"Wednesday\" everywhere and print the whole schedule.\n\n"
     "Monday, 9:00: meeting of all teams in the large hall.\nMonday, 10:30: introduction for new "
     "colleagues, room 12.\nMonday, 13:00: lunch together in the garden.\nMonday, 14:00: workshop "
     "on writing clear error messages, room 3.\nMonday, 16:00: tour of the workshop for "
     "guests.\nMonday, 17:30: farewell of the guests at the gate.\n",
     NULL},
};

static const bench_set_text story[BENCH_SET_SIZE] = {
    {"Write a short story about a clockmaker who repairs a clock that runs backwards.", NULL},
    {"Tell a bedtime story about a fox who is afraid of the dark.", NULL},
    {"Write the opening of a detective novel that is set in a small harbour town in winter.", NULL},
    {"Write a story about two strangers who share an umbrella.", NULL},
    {"Tell the story of the last librarian on a space station.", NULL},
    {"Write a fable in which a river and a mountain argue about who is older.", NULL},
    {"Write a story about a letter that arrives forty years late.", NULL},
    {"Tell a story about a child who finds a door in a tree.", NULL},
};

const bench_set bench_sets[] = {
    {"chat", -1.0f, chat},  {"code", -1.0f, code},       {"summarise", -1.0f, summarise},
    {"json", -1.0f, json},  {"editing", -1.0f, editing}, {"story", -1.0f, story},
    {"random", 1.5f, NULL},
};
const size_t bench_set_count = sizeof(bench_sets) / sizeof(bench_sets[0]);
