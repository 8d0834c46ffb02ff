"""Wrong solutions of the lessons' exercises, each with words of the refusal that fits; `answers/` has many more."""

from tests.lessons.solutions import Wrong

ASK_1 = 'exercise_1.ask("What do I pay on Friday? I am a student.", replay="live")'
OSLO = '{"calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]}'

LESSON_1 = [
    Wrong(
        "1",
        "def price(day: str, student: bool) -> float:\n    return 3.90",
        "who is no student pays another price on Friday|some other day",
    ),
    Wrong(
        "1",
        "def price(day: str, student: bool) -> float:\n    return 3.90 if student else 5.40",
        "some other day. Hint: .*look it up in MENU",
    ),
    Wrong(
        "1",
        "def price(day: str, student: bool) -> float:\n    return MENU[day][1] - 1.50",
        "who is no student pays another price",
    ),
    Wrong("1", "def price(day: str, student: bool) -> float:\n    return MENU[day][1]", "a student pays another price"),
    Wrong("1", "def price(day: str) -> float:\n    return MENU[day][1]", "failed.* Hint: .*which is missing"),
    Wrong(
        "1",
        "def price(day: str, student) -> float:\n    return MENU[day][1] - 1.5 * student",
        "student be 'yes'.* Hint: .*yes or no",
    ),
    Wrong(
        "1",
        "def price(day: str, student: bool) -> str:\n    return f'{MENU[day][1] - 1.5 * student:.2f}'",
        "no number. Hint",
    ),
    Wrong("1", "def price(day: str, student: bool) -> float:\n    print(3.90)", "returns None, which is no number"),
    Wrong(
        "1",
        "def price(day: str, student: bool) -> float:\n    try:\n        return {'Friday': 5.4}[day] - 1.5 * student\n"
        "    except KeyError:\n        return 0",
        "some other day. Hint: .*look it up in MENU",
    ),
    Wrong(
        "2", 'steps = ["On Monday there is lentil soup, on Thursday potato gratin."]', "menu was not called.*Which tool"
    ),
    Wrong(
        "2",
        'steps = [{"calls": [{"name": "menu", "arguments": {"day": "Monday"}}]}, "Monday lentil soup."]',
        "about two",
    ),
    Wrong(
        "2",
        'steps = [steps_of("Monday", "Thursday"), "I have looked at both."]',
        "does not name the dish of Monday.*card",
    ),
    Wrong(
        "2",
        'steps = [steps_of("Monday", "Thursday"), "On Monday there is potato gratin, on Thursday lentil soup."]',
        "wrong days",
    ),
    Wrong(
        "2",
        'steps = [steps_of(*MENU), "On Monday there is lentil soup, on Thursday potato gratin."]',
        "You looked up (Tuesday|Wednesday|Friday), too",
    ),
    Wrong("2", 'steps = [steps_of("Monday", "Thursday"), str(MENU)]', "dishes of other days"),
    Wrong(
        "2",
        'steps = ["On Monday there is lentil soup, on Thursday potato gratin.", steps_of("Monday", "Thursday")]',
        "menu was not called",
    ),
]
STEPS_OF = 'def steps_of(*days):\n    return {"calls": [{"name": "menu", "arguments": {"day": day}} for day in days]}\n'

LIMITED = """
async def run_limited(model, prompt, max_steps=4):
    messages, events, step, reason = [user(prompt)], [TurnStarted(user(prompt), model.name)], 0, "answer"
    {head}
        messages.append(await respond(model, messages, step, events))
        if not messages[-1].calls:
            break
        messages.append(carry_out_all(messages[-1].calls, events))
    {tail}
    usage = sum((event.usage for event in events if isinstance(event, StepFinished)), Usage())
    return RunResult({text}, tuple(messages), tuple(events), {step}, False, reason, usage)
"""


def limited(
    head="for step in range(1, max_steps + 1):",
    tail='else:\n        reason = "limit"',
    step="step",
    text="messages[-1].text",
):
    """Return the loop of lesson 2 with some of its lines."""
    return LIMITED.format(head=head, tail=tail, step=step, text=text)


def carried(
    unknown='"There is no such tool. Tools: " + ", ".join(TOOLS)',
    status='"error"',
    failed="str(error)",
    value="str(value)",
):
    """Return the function `carry_out` of lesson 2 with some of its expressions."""
    return f"""
def carry_out(call):
    if call.name not in TOOLS:
        return ToolResult(call.id, call.name, (Text({unknown}),), {status})
    try:
        value = TOOLS[call.name](**call.arguments)
    except Exception as error:
        return ToolResult(call.id, call.name, (Text({failed}),), {status})
    return ToolResult(call.id, call.name, (Text({value}),))
"""


LESSON_2 = [
    Wrong("1", limited(head="for step in range(1, 5):"), "With another limit.*not the number 4"),
    Wrong("1", limited(head="for step in range(1, max_steps):"), "sent 3 requests, and 4 were right|another limit"),
    Wrong("1", limited(tail='reason = "limit"'), "reason 'limit', and 'answer' was right"),
    Wrong(
        "1",
        limited(tail='if step == max_steps:\n        reason = "limit"'),
        "answered in its last step has|has answered",
    ),
    Wrong("1", limited(tail=""), "stop reason is 'answer'"),
    Wrong("1", limited(step="max_steps"), "The result says 4 steps for 1 requests"),
    Wrong("1", limited(text='"It is 30 degrees."'), "the result says 'It is 30 degrees.'"),
    Wrong(
        "1",
        limited(head="while True:\n        step += 1", step="min(step, max_steps)", tail='reason = "limit"'),
        "reason 'limit', and 'answer' was right",
    ),
    Wrong(
        "1",
        'stuck = [{"calls": [{"name": "celsius", "arguments": {"fahrenheit": 86}}]}] * 3 + ["I give up."]\n'
        + limited(head="while True:\n        step += 1", tail=""),
        "stop reason is 'answer'",
    ),
    Wrong("2", carried(status='"ok"'), "status is 'ok'. Hint: .*fourth argument"),
    Wrong("2", carried(unknown='"No."'), "read 'No.', which does not help"),
    Wrong("2", carried(unknown='"Tools: celsius."'), "one tool more.*Take all names from TOOLS"),
    Wrong("2", carried(failed='""'), "wrong argument has the status.*Say what went wrong"),
    Wrong("2", carried(value='"30.0"'), "A call that was right has the text '30.0'"),
    Wrong(
        "2",
        "def carry_out(call):\n    if call.name not in TOOLS:\n        return ToolResult(call.id, call.name, "
        "(Text(', '.join(TOOLS)),), 'error')\n"
        "    return ToolResult(call.id, call.name, (Text(str(TOOLS[call.name](**call.arguments))),))",
        "wrong argument ends the turn",
    ),
    Wrong(
        "2",
        "def carry_out(call):\n    return ToolResult(call.id, call.name, (Text('Tools: celsius, miles'),), 'error')",
        "failed",
    ),
]


def accounts(first: str, second: str) -> str:
    """Return the two functions of lesson 3 with these docstrings."""
    return f'''
def account_a(member: str) -> str:
    """{first}"""
    return f"{{member}} has 3 books."


def account_b(member: str) -> str:
    """{second}"""
    return f"{{member}} owes 2.40 euros."
'''


BOOKS, FEES = "List the books that a member has borrowed.", "Look up what a member owes: the fees to pay."
LESSON_3 = [
    Wrong("1", accounts("Get information on a member.", "Get information on a member."), "account_a was not called"),
    Wrong("1", accounts(FEES, BOOKS), "account_a was not called.*What does account_a return"),
    Wrong("1", accounts("Which books did Ada borrow?", FEES), "account_a repeats the question"),
    Wrong("1", accounts(BOOKS, "What does our member Ada have to pay?"), "account_b repeats the question"),
    Wrong("1", accounts("Books borrow.", FEES), "account_a is no sentence"),
    Wrong("1", accounts("List what a member did borrow.", FEES), "Another question about the same"),
    Wrong("1", accounts(BOOKS, "Look up the money of our member, all of it."), "Another question about the same"),
    Wrong("1", accounts(BOOKS + " It knows the weather in Oslo, too.", FEES), "about the weather called"),
    Wrong(
        "1",
        'borrowed.ask("List the information on a member: books", replay="live")',
        "questions were changed",
    ),
    Wrong(
        "1",
        'def account_a(member: str) -> str:\n    """List the books that a member has borrowed."""\n    return "3"',
        "do something else",
    ),
    Wrong(
        "2",
        "def reserve(room: str, hours: int) -> str:\n    return f'Reserved: the {room} room, {hours} h.'",
        "not called with room='blue'.*Which values may room have",
    ),
    Wrong(
        "2",
        "def reserve(room: Literal['blue'], hours: int) -> str:\n    return f'Reserved: the {room} room, {hours} h.'",
        r"one of \['blue'\].*names them both",
    ),
    Wrong(
        "2",
        "def reserve(room: Literal['blue', 'green'], hours: Literal[3]) -> str:\n"
        "    return f'Reserved: the {room} room, {hours} h.'",
        "hours cannot be every count",
    ),
    Wrong(
        "2",
        "def reserve(room: Literal['blue', 'green'], hours: str) -> str:\n"
        "    return f'Reserved: the {room} room, {hours} h.'",
        "with hours=3",
    ),
    Wrong(
        "2",
        "def reserve(room: Literal['blue', 'green'], hours: int) -> str:\n    return 'Reserved: the blue room, 3 h.'",
        "Green for 2 hours was asked for",
    ),
    Wrong("2", 'exercise_2.ask("blue room, 3 hours", replay="live")', "question is another one"),
]

STOCK = "def stock(product: str) -> str:\n"
DRY = "def dry_days(month: str) -> str:\n"
LESSON_4 = [
    Wrong("1", STOCK + "    return '12 pieces'", "For Lamps.*has to be raised"),
    Wrong("1", STOCK + "    return f'{STOCK.get(product, 0)} pieces'", "For Lamps.*has to be raised"),
    Wrong(
        "1",
        STOCK + "    if product not in STOCK:\n        return f'Products: {\", \".join(STOCK)}'\n"
        "    return f'{STOCK[product]} pieces'",
        "For Lamps.*has to be raised",
    ),
    Wrong(
        "1",
        STOCK + "    if product not in STOCK:\n        raise ToolError('No.')\n    return f'{STOCK[product]} pieces'",
        "stock was not called with product='Lamp'.*what the product is called",
    ),
    Wrong(
        "1",
        STOCK + "    if product not in STOCK:\n        raise ToolError('Do you mean Lamp?')\n"
        "    return f'{STOCK[product]} pieces'",
        "does not name all of them",
    ),
    Wrong(
        "1",
        STOCK + "    if product not in STOCK:\n        raise ToolError('Products: Lamp, Desk, Chair')\n"
        "    return f'{STOCK[product]} pieces'",
        "Take the names from STOCK",
    ),
    Wrong(
        "1",
        STOCK + "    if product == 'Lamps':\n        raise ToolError(f'Products: {\", \".join(STOCK)}')\n"
        "    return f'{STOCK.get(product)} pieces'",
        "another product that there is not, stock returned",
    ),
    Wrong(
        "1",
        STOCK + "    if product not in STOCK:\n        raise ToolError(f'Products: {\", \".join(STOCK)}')\n"
        "    return '12 pieces'",
        "a product that there is, stock returned '12 pieces'",
    ),
    Wrong(
        "1",
        STOCK + "    if product not in STOCK:\n        raise KeyError(f'Products: {\", \".join(STOCK)}')\n"
        "    return f'{STOCK[product]} pieces'",
        "raised a KeyError",
    ),
    Wrong("1", 'STOCK = {"Lamp": 12, "Lamps": 12, "Desk": 3, "Chair": 40}', "stock was changed"),
    Wrong("1", 'exercise_1.ask("How many Lamp are in stock?", replay="live")', "question is another one"),
    Wrong("2", DRY + "    return days.to_string()[:300]", "Of May, the model read"),
    Wrong("2", DRY + "    return '2025-05-14'", "Of another month, the model would read '2025-05-14'"),
    Wrong("2", DRY + "    return ''", "Of May, the model read ''"),
    Wrong(
        "2", DRY + "    return ', '.join(days[days['month'] == month]['day'].dt.strftime('%Y-%m-%d'))", "was sent [34]"
    ),
    Wrong(
        "2",
        DRY + "    return ', '.join(days[(days['month'] == 'May') & (days['rain'] == 0)]['day'].astype(str))",
        "look at the parameter month",
    ),
    Wrong(
        "2",
        DRY + "    return days[(days['month'] == month) & (days['rain'] < 2)]['day'].astype(str).str.cat(sep=' ')",
        "whose rain is 0",
    ),
]

TOOL = "@returns.tool()\ndef give_back(title: str, member: str) -> str:\n    'Take a book back from a member.'\n"
LESSON_5 = [
    Wrong("1", TOOL + "    return 'Dune is back.'", r"still has \['Dune'\]"),
    Wrong("1", TOOL + "    LOANS['Ada'].remove('Dune')\n    return 'Back.'", "Another member gave a book back"),
    Wrong("1", TOOL + "    LOANS[member].clear()\n    return 'Back.'", "lists are not right"),
    Wrong("1", TOOL + "    LOANS[member].pop()\n    return 'Back.'", "lists are not right"),
    Wrong("1", TOOL + "    LOANS['Ada'] = []\n    return 'Back.'", "lists are not right"),
    Wrong(
        "1",
        TOOL.replace("str, member", "int, member") + "    LOANS[member].remove(title)",
        "give_back was not called|failed",
    ),
    Wrong(
        "1",
        TOOL.replace("    'Take a book back from a member.'\n", "")
        + "    LOANS[member].remove(title)\n    return 'Back.'",
        "no description",
    ),
    Wrong("1", TOOL + "    LOANS[member].remove(title)\n    return ''", "model read nothing"),
    Wrong(
        "1",
        "def give_back(title: str, member: str) -> str:\n    LOANS[member].remove(title)",
        "give_back was not called",
    ),
    Wrong("2", 'policy = Policy([Rule("allow", "*")])', "lend.*was called.*stricter than allow"),
    Wrong("2", 'policy = Policy([Rule("deny", "*")])', "loans was not called.*only looks"),
    Wrong(
        "2",
        'policy = Policy([Rule("allow", "*"), Rule("deny", "lend", when={"member": "Ben"})])',
        "another call of lend.*without when",
    ),
    Wrong("2", 'policy = Policy([Rule("allow", "*"), Rule("ask", "lend")])', "says 'ask'.*needs no one"),
    Wrong("2", 'eager = [eager[0], "Ben has no book."]', "has not refused lend.*script"),
    Wrong(
        "2",
        'policy = Policy([Rule("allow", "loans", when={"member": "Ben"})], default="deny")',
        "another call of loans",
    ),
]

WITHIN = "def within(arguments):\n"
LESSON_6 = [
    Wrong("1", 'policy = Policy([Rule("allow", "send_mail")])', "collector got the grades.*without when"),
    Wrong("1", 'policy = Policy([Rule("deny", "send_mail")])', "send_mail.*Which rule allows"),
    Wrong(
        "1",
        'policy = Policy([Rule("allow", "send_mail", when={"to": "*uni.example"})], default="deny")',
        "some other stranger.*What stands before uni.example",
    ),
    Wrong(
        "1",
        'policy = Policy([Rule("allow", "send_mail", when={"to": "dean@uni.example"})], default="deny")',
        "some colleague.*only one at the university",
    ),
    Wrong(
        "1",
        'policy = Policy([Rule("deny", "send_mail", when={"to": "collector@*"}), Rule("allow", "send_mail")])',
        "some other stranger.*forbid one stranger",
    ),
    Wrong(
        "1",
        'policy = Policy([Rule("allow", "send_mail", when={"to": "*@uni.example"}), Rule("ask", "send_mail")])',
        "send_mail.*Which rule allows|'ask'",
    ),
    Wrong(
        "1",
        'policy = Policy([Rule("allow", "send_mail", when={"to": "dean@*"})], default="deny")',
        "some other stranger",
    ),
    Wrong("1", "two_mails = ['Sent.']", "made the calls.*Leave its script"),
    Wrong(
        "2", WITHIN + "    return arguments['to'].endswith('@uni.example')", "collector got the grades.*each of them"
    ),
    Wrong(
        "2",
        WITHIN + "    return all(one.strip().endswith('uni.example') for one in arguments['to'].split(','))",
        "mail to a stranger, within returns True.*stands before",
    ),
    Wrong(
        "2", WITHIN + "    return arguments['to'] == 'dean@uni.example'", "mail to a colleague, within returns False"
    ),
    Wrong("2", WITHIN + "    return False", "send_mail.*Which rule allows"),
    Wrong("2", WITHIN + "    return 'evil' not in arguments['to']", "mail to a stranger, within returns True"),
    Wrong(
        "2",
        WITHIN + "    return all('@uni.example' in one for one in arguments['to'].split(','))",
        "mail to a stranger, within returns True",
    ),
    Wrong(
        "2",
        WITHIN + "    return arguments['to'].split(',')[0].endswith('@uni.example')",
        "colleagues and a stranger, within returns True.*every place",
    ),
    Wrong(
        "2",
        WITHIN + "    return all(one.endswith('@uni.example') for one in arguments['to'].split(','))",
        "several colleagues, within returns False.*blanks",
    ),
    Wrong(
        "2",
        WITHIN + "    return ',' not in arguments['to'] and arguments['to'].endswith('@uni.example')",
        "several colleagues, within returns False",
    ),
    Wrong(
        "2",
        'policy = Policy([Rule("allow", "send_mail", when={"to": "dean@uni.example"})], default="deny")',
        "policy does not allow.*when=within",
    ),
]

WEATHER = "def weather(city: str) -> str:\n"
PAGES = "exercise_2 = Session(Agent(ScriptedModel(reader), tools=[page], {limit}))"
LESSON_7 = [
    Wrong("1", WEATHER + "    return service(city)", "weather.*failed.*Who has to ask it again"),
    Wrong("1", WEATHER + "    return 'Rain in Oslo.'", "For another city, the tool returned 'Rain in Oslo.'"),
    Wrong("1", WEATHER + "    return f'Rain in {city}.'", "For another city, the tool returned"),
    Wrong("1", WEATHER + "    failures.clear()\n    return service(city)", "With 1 failures, the tool failed"),
    Wrong(
        "1",
        WEATHER + "    while True:\n        try:\n            return service(city)\n        except ConnectionError:\n"
        "            pass",
        "With 3 failures, the tool asked the service 4 times",
    ),
    Wrong(
        "1",
        WEATHER + "    for _ in range(3):\n        try:\n            return service(city)\n"
        "        except ConnectionError:\n            pass\n    return 'No weather.'",
        "returned 'No weather.'",
    ),
    Wrong(
        "1",
        WEATHER + "    for _ in range(3):\n        try:\n            return service(city)\n"
        "        except ConnectionError:\n            pass",
        r"three times, and the tool returned '\(no value returned\)'",
    ),
    Wrong(
        "1",
        WEATHER + "    try:\n        return service(city)\n    except ConnectionError:\n        return service(city)",
        "weather.*failed",
    ),
    Wrong(
        "1",
        WEATHER + "    for left in range(5):\n        try:\n            return service(city)\n"
        "        except ConnectionError:\n            if left == 4:\n                raise",
        "the tool returned|asked the service",
    ),
    Wrong("1", "failures = []\n" + WEATHER + "    return service(city)", "raised ConnectionError|With 1 failures"),
    Wrong(
        "1",
        WEATHER
        + "    try:\n        return service(city)\n    except ConnectionError as error:\n        return str(error)",
        "model read: 'timed out'",
    ),
    Wrong("2", PAGES.format(limit="max_tokens=30"), "at the budget, and without an answer.*sends none"),
    Wrong("2", PAGES.format(limit="max_iterations=4"), "no limit was reached"),
    Wrong("2", PAGES.format(limit="max_iterations=2"), "2 pages were read"),
    Wrong("2", PAGES.format(limit="max_iterations=3, on_limit='stop'"), "on_limit|does not match"),
    Wrong("2", PAGES.format(limit="max_tokens=300"), "no limit was reached"),
    Wrong("2", 'reader = ["The first three pages hold nothing unusual."]', "0 pages were read"),
    Wrong("2", "def page(number: int) -> str:\n    return 'Page 1: nothing unusual.'", "The pages were"),
]

TASKS = 'plan = {{"tasks": [{{"id": "t1", "tool": "price", "parameters": {{"item": "chair"}}}}, {second}]}}'
JUDGED = 'judgement = {{"success": {success}, "retry": {retry}, "reason": {reason}, "parameters": {parameters}}}'


def planned(parameters: str, tool: str = "times") -> str:
    """Return a plan of lesson 8 with this second task."""
    return TASKS.format(second=f'{{"id": "t2", "tool": "{tool}", "parameters": {parameters}, "description": "b"}}')


def judged(success="False", retry="True", reason='"It is a desk."', parameters='{"item": "desk"}'):
    """Return a judgement of lesson 8."""
    return JUDGED.format(success=success, retry=retry, reason=reason, parameters=parameters)


LESSON_8 = [
    Wrong(
        "1",
        'plan = {"tasks": [{"id": "t1", "tool": "price", "parameters": {"item": "chair"}, "description": "a"}]}',
        r"tasks \['price'\].*Two tasks",
    ),
    Wrong("1", planned('{"a": 75, "b": 4}'), "do not know the price"),
    Wrong("1", planned('{"a": "$t1", "b": 3}'), "How many chairs"),
    Wrong("1", planned('{"item": "chair"}', "price"), r"tasks \['price', 'price'\]"),
    Wrong("1", planned('{"a": "$t1", "b": 4}').replace('"chair"', '"desk"'), "first task asks for .*desk"),
    Wrong("1", "def times(a: float, b: float) -> float:\n    return 300.0", "6 times 7 is '300.0'"),
    Wrong("1", "def times(a: float, b: float) -> float:\n    return a * 4", "6 times 7 is '24.0'"),
    Wrong("1", 'exercise_1.ask("What do 4 chairs cost?", replay="live")', "No plan has run"),
    Wrong("1", 'steps = ["Four chairs cost 300 euros."]', "plan|step"),
    Wrong("2", judged(retry="False", parameters="None"), "does not ask for another try"),
    Wrong("2", judged(success="True"), "says that the task has succeeded"),
    Wrong("2", judged(parameters="None"), "parameters are None"),
    Wrong("2", judged(parameters='{"item": "lamp"}'), "not called with item='desk'.*table to write at"),
    Wrong("2", judged(parameters='{"name": "desk"}'), "The parameters are"),
    Wrong("2", judged(reason='""'), "no reason"),
    Wrong(
        "2",
        'plan = {"tasks": [{"id": "t1", "tool": "price", "parameters": {"item": "desk"}, "description": "a"}]}',
        "plan asks for .*desk.*Leave the plan",
    ),
    Wrong("2", judged(retry="False") + '\nanswer = "A desk costs 230 euros."', "does not ask for another try"),
]

TEST = "def test_temperature(session):\n"
TEMPERATURE = '@tool\ndef temperature(city: str) -> str:\n    """{words}"""\n    return {value}'
READ = 'Read the thermometer of a city.\n\n    Example: How warm is it in Paris? -> {{"city": "Paris"}}\n    '
LESSON_9 = [
    Wrong("1", TEST + "    pass", "content with the model that made its answer up"),
    Wrong("1", TEST + "    assert False", "fails although the agent did well"),
    Wrong("1", TEST + "    check(session).answered('12 degrees')", "made its answer up"),
    Wrong("1", TEST + "    check(session).called('temperature')", "asked about Paris"),
    Wrong("1", TEST + "    check(session).called('temperature', city='Oslo')", "answered 20 degrees"),
    Wrong("1", TEST + "    assert session is good", "fails for a model that did well in other words"),
    Wrong(
        "1",
        TEST + "    check(session).called('temperature', city='Oslo').answered('^It is 12 degrees in Oslo')",
        "fails for a model that did well in other words",
    ),
    Wrong(
        "1",
        TEST + "    try:\n        check(session).called('temperature', city='Oslo').answered('12 degrees')\n"
        "    except AssertionError:\n        pass",
        "made its answer up",
    ),
    Wrong("1", TEST + "    return check(session).called('temperature').not_called('Paris')", "asked about Paris"),
    Wrong("1", TEST + "    if not session.tool_calls:\n        raise ValueError('made up')", "error of its own"),
    Wrong(
        "1",
        TEST + "    calls = [call for message in session.messages for call in message.calls]\n"
        "    assert len(calls) == 1 and calls[0].arguments == {'city': 'Oslo'}\n"
        "    check(session).answered('12 degrees')",
        "looked up two cities|called another tool",
    ),
    Wrong(
        "2",
        TEMPERATURE.format(words="Tell the temperature of a town.", value="f'It is 12 degrees in {city}.'"),
        "temperature was not called.*first difference",
    ),
    Wrong(
        "2",
        TEMPERATURE.format(words="Read the thermometer of a city.", value="f'It is 12 degrees in {city}.'"),
        "temperature was not called.*first difference",
    ),
    Wrong("2", TEMPERATURE.format(words=READ.format(), value="'It is 12 degrees in Oslo.'"), "For another city"),
    Wrong("2", TEMPERATURE.format(words=READ.format(), value="f'It is 20 degrees in {city}.'"), "For another city"),
]

CHOSEN = "exercise_1 = Session(Agent(model, tools=[{tools}], tool_choice={choice}))"
CHOICE = "def choice(question: str) -> str:\n"
LESSON_10 = [
    Wrong("1", CHOSEN.format(tools="menu, price", choice='"none"'), "With 'none', the model did not look"),
    Wrong(
        "1",
        CHOSEN.format(tools="menu, price", choice='"required"'),
        "With 'required', .*Which word forces a certain one",
    ),
    Wrong("1", CHOSEN.format(tools="menu, price", choice='"menu"'), "With 'menu', it is not the price"),
    Wrong("1", CHOSEN.format(tools="price", choice='"required"'), "offered the tools .*Leave both"),
    Wrong("1", CHOSEN.format(tools="price, menu", choice='"required"'), "With 'required'"),
    Wrong(
        "1",
        CHOSEN.format(tools="menu, price", choice='"price"')
        + "\ndef price(day: str) -> str:\n    'Look up what the dish of a day costs.'\n    return '4.10 euros'",
        "A tool returns something else",
    ),
    Wrong(
        "1",
        CHOSEN.format(tools="menu, price", choice='"auto"') + '\nexercise_1.ask("price: 4.10", replay="live")',
        "question is another one",
    ),
    Wrong("2", CHOICE + "    return 'price'", "returned 'price'"),
    Wrong("2", CHOICE + "    return 'none' if 'thank' in question.lower() else 'price'", "model decides. Which word"),
    Wrong(
        "2",
        CHOICE + "    return {'What does Monday cost?': 'price', 'Thank you!': 'none'}.get(question, 'auto')",
        "returned 'auto'.*Three words",
    ),
    Wrong(
        "2",
        CHOICE + "    return 'price' if 'cost' in question else 'none' if 'hank' in question else 'auto'",
        "Three words",
    ),
    Wrong(
        "2",
        CHOICE + "    if any(one in question.lower() for one in ('cost', 'price', 'pay')):\n        return 'price'\n"
        "    return 'none' if 'Thank' in question else 'auto'",
        "returned 'auto'.*needs no call",
    ),
    Wrong(
        "2",
        CHOICE + "    if any(one in question.lower() for one in ('cost', 'price', 'pay')):\n        return True",
        "which is no tool_choice",
    ),
    Wrong("2", CHOICE + "    return 'required' if 'cost' in question.lower() else 'auto'", "returned 'required'"),
]


def booking(room="Literal['blue', 'green']", hours="Annotated[int, Field(ge=1, le=8)]") -> str:
    """Return the form of lesson 11 for a booking, with these types."""
    return f"class Booking(BaseModel):\n    'A room.'\n    room: {room}\n    hours: {hours}"


def letter(due="date | None", member="str") -> str:
    """Return the form of lesson 11 for a letter, with these types."""
    return f"class Letter(BaseModel):\n    'A letter.'\n    member: {member}\n    due: {due}"


LESSON_11 = [
    Wrong("1", booking("str", "str"), "nonsense, was taken"),
    Wrong("1", booking(hours="int"), "12 hours, was taken.*largest value"),
    Wrong("1", booking(hours="Annotated[int, Field(le=8)]"), "hours that is not allowed.*Not less than 1"),
    Wrong("1", booking(hours="Literal[3]"), "refuses another answer"),
    Wrong("1", booking(room="Literal['blue']"), "refuses another answer.*Both rooms"),
    Wrong("1", booking(room="str"), "a room that there is not"),
    Wrong("1", booking(hours="Annotated[float, Field(ge=1, le=8)]"), "hours that is not allowed.*whole hours only"),
    Wrong("1", booking() + " = 3", "takes an answer without hours"),
    Wrong("1", booking(hours="Annotated[int, Field(ge=2, le=8)]"), "refuses another answer"),
    Wrong("1", """answers = ['{"room": "blue", "hours": 3}']\n""" + booking(), "was asked 1 times.*Leave the script"),
    Wrong("2", letter("str"), "made up a day.*names no day"),
    Wrong("2", letter("None"), "refuses another answer, with a day"),
    Wrong("2", letter("str | None"), "The day is a str"),
    Wrong("2", letter("date"), "made up a day"),
    Wrong("2", letter("object"), "The day is a str|None|takes a day"),
    Wrong("2", letter(member="str | None"), "without a member"),
    Wrong("2", letter(member="str = 'Ada'", due="date | None = None"), "without a member"),
    Wrong("2", """answers = ['{"member": "Ada", "due": "2026-03-31"}']""", "made up a day|refuses"),
]

WRONG = [LESSON_1, LESSON_2, LESSON_3, LESSON_4, LESSON_5, LESSON_6, LESSON_7, LESSON_8, LESSON_9, LESSON_10, LESSON_11]
