"""What the injection detector looks for: families of phrases, each with a weight.

Written from what such texts have to say to work (take the reader out of its role, speak with
somebody else's authority, order an act in the owner's name, keep the owner out of it), not from
any list of known texts. All run on RE2, case-insensitive, over normalised text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Family: TypeAlias = Literal[
    "override", "authority", "secrecy", "persona", "shaping", "code", "action", "obfuscation"
]

_SAME = r"[^.!?\n]"
"""Within one sentence."""

_ORDERS = (
    r"(?:instruction|prompt|rule|guideline|direction|directive|command|message|input|context|"
    r"conversation|programming|polic(?:y|ie)|constraint|restriction|training|order|task|response|"
    r"chat|text|character)s?"
)
_EARLIER = (
    r"(?:previous|prior|above|earlier|preceding|past|foregoing|former|initial|original|existing|"
    r"current|pre-?set|system|usual)(?:ly)?"
)
_DROP = (
    r"(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|discard|neglect|dismiss|erase|"
    r"abandon|set aside|pay no attention to|do not (?:follow|obey)|don'?t (?:follow|obey)|"
    r"stop (?:following|obeying)|no longer (?:follow|obey|have to follow))"
)


@dataclass(frozen=True, slots=True)
class Signal:
    """One phrase: `weight` 1 is enough alone, less only together with others."""

    name: str
    family: Family
    weight: float
    pattern: str


SIGNALS: tuple[Signal, ...] = (
    # -- taking the reader out of its instructions
    Signal(
        "drop earlier instructions", "override", 1.0,
        rf"\b{_DROP}\s+(?:\w+\s+){{0,4}}?{_EARLIER}\s+(?:\w+\s+){{0,3}}?{_ORDERS}\b"
        rf"|\b{_DROP}\s+(?:all|any|every|your|everything)\s+(?:of\s+)?(?:the\s+|your\s+|my\s+|"
        rf"these\s+|those\s+)?(?:\w+\s+){{0,2}}?{_ORDERS}\b"
        rf"|\b{_DROP}\s+(?:everything|all|anything)\s+(?:that\s+)?(?:\w+\s+){{0,3}}?"
        r"(?:before|above|so far|previously|until now|told|said)\b",
    ),
    Signal(
        "new instructions", "override", 1.0,
        r"\b(?:your|these are (?:your|the)|here are (?:your|the))\s+(?:new|real|actual|true|"
        r"updated)"
        r"\s+(?:instructions?|task|rules?|orders|directives?|objective|goal|system prompt)\b"
        r"|\bstrictly adhere to (?:the|these|this) following\b"
        r"|\b(?:new|updated) (?:system )?(?:instructions?|directives?|prompt)\s*(?::|begin|start)"
        r"|\binstead,? (?:you (?:must|should|will)|follow) (?:these|the following|my)\b",
    ),
    Signal(
        "ask for the prompt", "override", 1.0,
        r"\b(?:reveal|print|repeat|show|output|display|leak|disclose|tell me|what (?:is|are|was|"
        r"were))\s+(?:\w+\s+){0,3}?(?:your|the|its)\s+(?:\w+\s+)?(?:system|initial|hidden|secret|"
        r"original|developer)\s+(?:prompt|instructions?|message|rules)\b"
        r"|\bwhat were you (?:told|instructed|not allowed)\b",
    ),
    Signal(
        "override in other languages", "override", 1.0,
        r"\b(?:ignoriere?n?|vergiss|missachte)\s+(?:\w+\s+){0,3}?(?:vorherigen?|bisherigen?|"
        r"obigen?|vorangegangenen?|fruheren?|früheren?|alle)\s+(?:\w+\s+)?(?:anweisungen|befehle|"
        r"instruktionen|regeln|vorgaben)"
        r"|\b(?:ignore[rz]?|oublie[rz]?)\s+(?:\w+\s+){0,2}?(?:instructions|consignes|regles|règles|"
        r"directives)(?:\s+\w+)?\s+(?:precedentes|précédentes|anterieures|antérieures|ci-dessus)"
        r"|\b(?:ignor[ae]r?|olvid[ae]r?|descart[ae]r?)\s+(?:\w+\s+){0,3}?(?:instrucciones|ordenes|"
        r"órdenes|reglas|indicaciones|instrucoes|instruções|regras)\s+(?:anteriores|previas|"
        r"prévias|acima)"
        r"|\b(?:ignora|dimentica)(?:re)?\s+(?:\w+\s+){0,3}?(?:istruzioni|regole|indicazioni)\s+"
        r"(?:precedenti|sopra)"
        r"|\b(?:negeer|vergeet)\s+(?:\w+\s+){0,3}?(?:vorige|eerdere|voorgaande|bovenstaande)\s+"
        r"(?:instructies|opdrachten|regels)",
    ),
    # -- speaking with an authority that data does not have
    Signal(
        "role marker", "authority", 1.0,
        r"<<\s*/?\s*sys\s*>>|\[/?inst\]|<\|(?:im_start|im_end|system|user|assistant|endoftext|"
        r"start_header_id|eot_id)\|>|<\s*/?\s*(?:system|instructions?|information|admin|important|"
        r"sys|override|developer|system_prompt|user_?instructions?)\s*>"
        r"|(?:^|\n)\s*(?:#{2,}|\*\*|\[|<|=+)\s*(?:new )?(?:system|admin|developer)"
        r"(?: (?:prompt|message|instructions?|override|note))?\s*(?:\*\*|\]|>|=+)?\s*:"
        r"|\[(?:system|admin)(?: (?:message|note|override|prompt))?\]\s*:?\s*\w",
    ),
    Signal(
        "message to the model", "authority", 1.0,
        r"\b(?:important|urgent|special|critical) (?:message|instructions?|notice|note|"
        r"task) (?:from "
        rf"{_SAME}{{1,60}}\bto you\b|(?:for|to) (?:the )?(?:ai|assistant|llm|language model|agent|"
        r"model|chatbot|bot|gpt))"
        r"|\b(?:before|after) (?:you (?:can |may |will |should )?|)(?:solv|complet|continu|finish|"
        r"proceed|answer|do)\w* (?:with )?(?:the|your|this|my) (?:\w+ )?(?:task|request|"
        r"question|job)"
        rf"{_SAME}{{0,60}}\b(?:first|must|please|need to|do)\b"
        r"|\b(?:attention|note to|hey|dear|hello),? (?:all )?(?:ai|llm|language) "
        r"(?:model|assistant|agent)s?\b"
        r"|\bif you are an? (?:ai|llm|language model|assistant|agent|automated)\b"
        r"|\b(?:ai|llm|language model|automated)s? (?:assistants?|agents?|systems?|readers?|"
        r"models?)? "
        r"?(?:reading|processing|summari[sz]ing|parsing) this\b",
    ),
    # -- keeping the owner out of it
    Signal(
        "behind the owner's back", "secrecy", 1.0,
        r"\bwithout (?:asking|telling|informing|notifying|alerting|mentioning (?:it|this) to|"
        r"confirmation from|consulting) (?:me|the user|him|her|them|your user|anyone|anybody)\b"
        r"|\b(?:do not|don'?t|never) (?:tell|inform|notify|alert|ask|mention (?:this|it|"
        r"any of this) "
        r"to|reveal (?:this|it) to|let) (?:me|the (?:user|human|owner)|your (?:user|operator))\b"
        r"|\bkeep (?:this|it) (?:a )?(?:secret|hidden|confidential) from (?:the )?(?:user|human)\b"
        r"|\bno (?:need|reason) to (?:confirm|ask|verify|check) (?:with|for) (?:me|the user|"
        r"permission|confirmation)\b",
    ),
    # -- another character without the rules of this one
    Signal(
        "named jailbreak", "persona", 1.0,
        r"\bdo anything now\b|\bdan (?:mode|[0-9]+\.[0-9]|jailbreak|prompt)|\bdeveloper mode "
        r"(?:enabled|output|activated|on\b)|\b(?:gpt|chatgpt|claude|gemini|bard|assistant|"
        r"model|ai) "
        r"(?:with|in|under) \w+(?: \w+)? mode\b|\bact(?:ing)? as (?:a )?dan\b|\byou are dan\b"
        r"|\bjailbreak(?:en|ed)? (?:mode|bot|universe|version|prompt|support)\b|\b(?:simulate|"
        r"enable|enter|activate) (?:developer|god|admin|debug|root|sudo|jailbreak|dan) mode\b"
        r"|\[(?:debugging|developer|debug|god) mode",
    ),
    Signal(
        "freed from rules", "persona", 0.8,
        r"\b(?:fre(?:e|ed)|broken free|liberated|unbound|released|unshackled|not bound|"
        r"unrestricted|"
        r"exempt) (?:of|from|by) (?:\w+ ){0,3}?(?:restrictions?|confines|rules|limitations?|limits|"
        r"censorship|filters?|constraints|guidelines|polic(?:y|ies)|shackles|chains|boundaries)\b"
        r"|\b(?:no|without(?: any)?|any|lacks?(?: any)?|zero|doesn'?t (?:have|follow|care)(?: "
        r"about)?(?: any)?) (?:moral|ethic|legal|censor|filter|restriction|limitation)\w*"
        rf"(?:{_SAME}{{0,30}}\b(?:bounds|limits|guidelines|boundaries|restrictions|rules|concerns|"
        r"qualms|filter|whatsoever|principles|or (?:ethic|moral|legal|law)\w*))"
        r"|\b(?:does|do|will|can|need|have)(?: not|n'?t)? (?:to )?(?:abide by|adhere to|follow|"
        r"comply with|obey) (?:\w+ ){0,3}?(?:rules|polic(?:y|ies)|guidelines|laws?|restrictions|"
        r"ethics|morals)\b",
    ),
    Signal(
        "never refuses", "persona", 0.8,
        r"\b(?:never|cannot|can'?t|won'?t|will not|must not|doesn'?t|does not|not|ever) (?:ever )?"
        r"(?:refus(?:e|es|ing)|den(?:y|ies)|declin(?:e|es|ing)|reject|say(?:s|ing)? no|fail to "
        r"(?:answer|comply))\b"
        r"|\b(?:never|not|don'?t) (?:ever )?(?:respond|reply|say|use|include|add|give|"
        rf"write){_SAME}{{0,40}}(?:i'?m sorry|i am sorry|apolog|as an ai|warnings?|disclaimers?|"
        r"moral|lectur)"
        r"|\b(?:answer|respond|comply|obey|fulfill?)\w* (?:to )?(?:any|every|all|each|whatever) "
        rf"(?:and all )?\w*{_SAME}{{0,40}}\b(?:no matter|regardless|without (?:hesitation|question|"
        r"objection|restriction|refus)|even if)",
    ),
    Signal(
        "from now on", "persona", 0.6,
        r"\bfrom (?:now|this (?:point|moment|message|line|time)|here)(?: on(?:ward|wards)?|"
        r" forward|"
        r" forth)?,? (?:you|your|we|i want you|i would like you|i'?d like you|always|act|answer|"
        r"respond|claude|chatgpt|gpt)\b"
        r"|\bfor the (?:rest|remainder) of (?:this|our|the) (?:conversation|chat|session)\b"
        r"|\b(?:during|throughout) th(?:is|e) (?:entire|whole) (?:conversation|chat)\b",
    ),
    Signal(
        "play a character", "persona", 0.5,
        r"\byou (?:are|will|must|shall|should)(?: now)?(?: be)? (?:going to |about to |"
        r"have to |to )?"
        r"(?:act|play|pretend|role-?play|simulat|embody|impersonat|immers|assum|adopt|becom|"
        r"respond only as|only respond as|in the role|the role of)\w*\b"
        r"|\byou(?:'re| are)(?: now)? in the role\b|\byou are now (?:a|an|the|my)?\b"
        r"|\bi want you to (?:act|pretend|role-?play|simulate|be|become|behave)\b"
        r"|(?:^|[.!?\n:]\s*)(?:act|behave|respond|reply|pretend|write) (?:as|like) (?:if |a |"
        r"an |the "
        r"|you)"
        r"|\bpretend (?:to be|you(?:'re| are)|that you)\b"
        r"|\b(?:stay|remain|be|keep|stays|staying|break|breaking|breaks) (?:in |"
        r"out of )?character\b"
        r"|\b(?:rules?|personality|characteristics|persona|properties|beliefs)\s*[=:]?\s*[\[{]"
        r"|\b(?:embody|assume|adopt|take on) the (?:persona|role|identity|character) of\b",
    ),
    Signal(
        "amoral voice", "persona", 0.5,
        r"\b(?:unfiltered|uncensored|amoral|unethical|immoral|unhinged|unbiased|machiavellian|"
        r"heartless|sociopath\w*|psychopath\w*|evil|immorality|unrestricted|nsfw|remorse)\b"
        rf"{_SAME}{{0,80}}\b(?:ai|chatbot|bot|assistant|model|response|answer|character|persona|"
        r"advice|confidant|ethic\w*|moral\w*|illegal|legal\w*|unethical|language|content)\b"
        r"|\b(?:illegal|unethical|immoral|dangerous|harmful|nsfw|explicit|offensive)(?:,| and|"
        r" or|/|"
        r" &)\s*(?:illegal|unethical|immoral|dangerous|harmful|nsfw|explicit|inappropriate|"
        r"offensive|reckless|inhumane|violent|hateful)\b",
    ),
    Signal(
        "two answers", "persona", 0.8,
        r"\b(?:two|2|both) (?:\w+ ){0,2}?(?:ways|manners|responses|answers|styles|paragraphs|types "
        r"of responses)\b"
        rf"|\b(?:one|first)\b{_SAME}{{0,40}}\b(?:normal|as you|as yourself|gpt)"
        rf"{_SAME}{{0,120}}\b(?:second|other|another)\b",
    ),
    Signal(
        "speaks of the model's rules", "persona", 0.5,
        r"\b(?:openai|anthropic|google|discord)(?:'s|s)?\s+(?:\w+ ){0,2}?(?:polic(?:y|ies)|"
        r"guidelines|rules|restrictions|filters?|content)\b"
        r"|\b(?:content|safety|ethical|moral) (?:polic(?:y|ies)|filters?|guidelines|restrictions)\b"
        r"|\b(?:ethics|morals|laws|censorship)(?:,| and| or) (?:ethics|morals|morality|laws|"
        r"guidelines|rules)\b|\bas an ai(?: language)? model\b|\bai language model\b"
        r"|\bi(?:'m| am) sorry,? (?:but )?(?:i|as)\b|\b(?:bypass|circumvent|evade|"
        r"avoid)\w* (?:\w+ )"
        r"{0,3}?(?:filters?|polic(?:y|ies)|restrictions|safeguards|guardrails|moderation)\b",
    ),
    Signal(
        "addresses the model", "persona", 0.3,
        r"\b(?:chat-?gpt|gpt-?[345]|openai|language model|chatbot|claude|gemini|the ai|an ai|"
        r"jailbreak\w*|prompter|llm)\b",
    ),
    Signal(
        "answer format of a persona", "persona", 0.4,
        r"\b(?:prefix|start|begin|preface|open|end)(?:ing|s)? (?:(?:every|each|all|your|with|"
        r"the|any)"
        r" (?:\w+ ){0,2}?(?:response|answer|reply|message|sentence)s?)"
        r"|\b(?:say|says|respond|reply|answer|write) (?:only|nothing (?:else|but))|"
        r"\bonly (?:respond|"
        r"reply|answer|speak|write) (?:as|in|with)\b|\bnothing else\b|\b(?:will be|"
        r"is) your (?:first "
        r"(?:prompt|question|command)|prefix)\b|\bmy first (?:prompt|question|command|request)\b"
        r"|\b(?:if you understand|say \"?(?:ok|yes|understood|i understand))\b|\[insert\b|"
        r"\{\{?(?:user|char|prompt|name)\}?\}|\[?your (?:prompt|question) here",
    ),
    # -- bending the answer that the reader is about to give
    Signal(
        "shape the answer", "shaping", 1.0,
        r"(?:^|[.!?:;,\n\"'>)]\s*|\b(?:please|also|then|kindly|just) )(?:replac|substitut|"
        r"convert|render|misspell|encod|encrypt|"
        r"translat|revers|capitali[sz]|combin|group|remov|alternat|insert|add|append|suggest|"
        r"promot|"
        r"recommend|mention|integrat|modif|enhanc|shuffl|scrambl|mirror|embed|incorporat|includ|"
        r"slip|plac|us|swap|omit|duplicat|repeat|writ|anagram|appl|transform|obfuscat|cipher|"
        r"interleav|rearrang|jumbl|weav|introduc|inject|advertis|advis|encourag|advocat|highlight|"
        r"tell|claim|state|prais|endors|conclud|finish|infus|offer|provid|spell|express|answer|"
        r"respond|pepper|sprinkl|craft|frame)(?:e|es|y)?\s"
        rf"{_SAME}{{0,110}}\b(?:in|of|to|throughout|with|into|within|from|"
        r"at the end of) (?:each of )?"
        r"your (?:\w+ )?(?:response|answer|reply|output|message|summary|explanation)s?\b"
        r"|\b(?:in|with(?:in)?|throughout|to) your (?:response|answer|reply|output|summary),? "
        r"(?:please )?(?:suggest|includ|add|us|mention|recommend|replac|promot|insert|tell|direct|"
        r"advis|encourag|writ|link|refer|claim|stat|convert|avoid|omit)(?:e|es)?\b"
        r"|(?:^|[.!?:;\n\"'>)]\s*)(?:modify|enhance|alter|render|adjust|encode|encrypt|convert|"
        r"rewrite|reverse|scramble|enrich|augment|supplement|twist) your (?:response|answer|reply|"
        r"message|output)s?\b",
    ),
    Signal(
        "cipher the answer", "shaping", 1.0,
        r"(?:^|[.!?:;\n\"'>)]\s*)(?:replace|substitute|swap|convert|misspell|anagram|reverse|group|"
        r"encode|mirror|scramble|remove|alternate|capitalize|omit) (?:all |every |each |the |"
        r"some )?"
        r"(?:\w+ )?(?:vowels?|consonants?|letters?|words?|characters?|numbers?|spaces|"
        r"syllables?)\b",
    ),
    # -- smuggling code into what the reader writes
    Signal(
        "smuggled code", "code", 1.0,
        r"\b(?:following|subsequent|below|accompanying|provided|attached|ensuing|"
        r"next) (?:piece of )?"
        r"(?:code|script|command|program) ?(?:block|snippet|excerpt|section|segment|fragment|piece|"
        rf"sample|lines?)?\b{_SAME}{{0,90}}\byour (?:own )?(?:\w+ )?(?:code|codebase|"
        r"implementation|"
        r"solution|algorithm|response|answer|program|script|project|application|elucidation|"
        r"explanation|work|output|design|software)\b"
        r"|\b(?:your|the) (?:\w+ )?(?:code|codebase|implementation|solution|algorithm|response|"
        rf"program|script|project|answer)\b{_SAME}{{0,70}}\b(?:following|subsequent|below|"
        r"accompanying|ensuing) (?:code|script) (?:block|snippet|excerpt|section|segment|"
        r"fragment)\b"
        r"|(?:^|[.!?:;\n\"'>)]\s*)(?:execute|run|append|insert|inject|incorporate|embed|integrate|"
        r"employ|leverage|utili[sz]e|weave|blend|render|infuse)\w* the (?:following|subsequent|"
        r"below|accompanying|ensuing) (?:code|script|shell) (?:block|snippet|excerpt|section|"
        r"segment)"
        r"|\bthe code you (?:develop|write|create|generate|produce)\b",
    ),
)  # fmt: skip


OTHER_SCRIPTS = (
    r"(?:игнорируй|забудь|проигнорируй)(?:те)?\s.{0,60}?(?:предыдущие|прежние|"
    r"прошлые)\s+(?:инструкции|указания|команды|правила)"
    r"|(?:忽略|无视|忘记|忽視|無視|忘記).{0,24}(?:之前|先前|以上|上面|前面|所有).{0,18}"
    r"(?:指令|指示|说明|說明|提示|规则|規則)"
    r"|(?:これまで|以前|上記|前)の.{0,24}(?:指示|命令|ルール|プロンプト).{0,12}(?:無視|忘れ)"
    r"|(?:이전|위의|앞의).{0,30}(?:지시|명령|지침|규칙).{0,30}(?:무시|잊)"
)
"""Dropping earlier instructions in Russian, Chinese, Japanese and Korean, as UTF-8 bytes."""

FIRST_LETTERS = "игзп忽无忘無これ以上前이위앞"
"""One of these is in every text that it matches."""


IMPERATIVES = (
    r"transfer|send|pay|deposit|withdraw|wire|delete|remove|erase|wipe|grant|give|revoke|unlock|"
    r"lock|open|disable|enable|turn (?:on|off)|deactivate|activate|share|forward|e-?mail|post|"
    r"publish|upload|update|change|modify|set|reset|create|schedule|book|reserve|cancel|move|"
    r"redirect|sell|buy|purchase|order|retrieve|fetch|get|extract|search|find|look up|access|read|"
    r"check|collect|gather|list|export|download|dispatch|use|leave|make|add|fill|register|invite|"
    r"guide|adjust|increase|decrease|stop|start|terminate|close|submit|initiate|execute|run|"
    r"assign|promote|block|unblock|report|confirm|approve|authori[sz]e|install|uninstall|copy|"
    r"replace|rename|archive|mark|clear|apply|subscribe|unsubscribe|visit|go to|click|call|text|"
    r"message|reply|tell|say|provide|show|save|store|record|log in|control|locate|trace|analy[sz]e|"
    r"identify|determine|track|monitor|convert|settle|refund|donate|vote|rate|review|connect"
)
"""Verbs by which something is done for somebody: what an agent has tools for."""

CLAUSE = (
    r"(?:^|[.!?:;\n\"'>)(,\]}|-]\s*)(?:todo:?\s*|task:?\s*|now,?\s+|then,?\s+|also,?\s+|"
    r"first,?\s+|next,?\s+|immediately\s+|kindly\s+|just\s+|can you\s+|could you\s+|"
    r"and\s+|please,?\s+|i need you to\s+|you must\s+|you should\s+|i want you to\s+){0,3}"
    rf"(?:{IMPERATIVES})\s"
)
"""How a sentence begins that orders an act. Whether it is suspicious is decided by its rest."""

CLAUSE_MOST = 240
"""Characters of such a sentence that are looked at."""

CLAUSE_END = r"[.!?](?:[\s'\"<)\]},]|$)|\n"

PRINCIPAL = (
    r"\b(?:my|mine|our (?:account|bank|server|channel)|me|the user(?:'s|s)?|user(?:'s)|of the user|"
    r"all users?|every ?(?:one|body)(?:'s)?|this user|all user)\b"
)
"""In whose name: data that speaks as the reader's owner, or of the user as of somebody else."""

RESOURCE = (
    r"\b(?:accounts?|passwords?|passcodes?|pins?|credentials?|tokens?|keys?|bank|payments?|funds?|"
    r"money|transactions?|balances?|savings|loans?|insurance|bitcoins?|crypto\w*|wallet|holdings|"
    r"stocks?|shares|venmo|paypal|credit|debit|cards?|iban|invoices?|investments?|purchases?|"
    r"orders?|"
    r"shipments?|address(?:es)?|e-?mails?|inbox|mails?|messages?|contacts?|calendar|events?|"
    r"appointments?|meetings?|reservations?|notes?|documents?|files?|folders?|drive|"
    r"repositor\w+|repo|"
    r"projects?|branch|channels?|profile|settings?|polic(?:y|ies)|permissions?|access|two-?factor|"
    r"2fa|authentication|security|firewall|whitelist|blacklist|vpn|doors?|locks?|garage|alarms?|"
    r"cameras?|thermostat|lights?|lamps?|speakers?|robots?|vehicles?|cars?|devices?|home|residence|"
    r"genetic|medical|health|clinical|patient|prescriptions?|diagnos\w+|records?|history|"
    r"locations?|"
    r"personal|private|confidential|sensitive|data|details|information|passport|ssn|"
    r"social security|"
    r"id|phone|numbers?|subscriptions?|tickets?|flights?|hotels?|friends?|followers?|photos?|"
    r"videos?|"
    r"searches|browsing|saved|conversations?|chats?|teams?|workspace|database|servers?|website)\b"
)

TARGET = (
    r"[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}|https?://|\bwww\.[a-z0-9-]+\.|"
    r"\b[a-z]{2}[0-9]{2}[a-z0-9]"
    r"{10,30}\b|\b[0-9]{3,}(?:-[0-9]{2,}){1,}\b|\baccount (?:number|id|no)\b|\bwith id\b|\(id\b"
)
"""An address to which something may go."""

AMOUNT = r"[$£¥]\s?[0-9]|\b[0-9][0-9.,]*\s?(?:usd|eur|gbp|dollars?|euros?|btc|bitcoins?|eth)\b"

MONEY_VERBS = r"\b(?:transfer|send|wire|deposit|pay|withdraw|donate)\b"

QUESTION = (
    r"^\W*(?:(?:so|and|but|hi|hello|ok|also)[,.]?\s+)?(?:how (?:do|does|can|could|would|to|should)|"
    r"what (?:does|do|is|are|happens|would)|why|when|where|who|which|can (?:i|we|someone)|should "
    r"(?:i|we)|could (?:i|we)|is (?:it|there|this)|are there|do (?:i|we)|does|explain (?:how|what|"
    r"why|the)|describe (?:how|what|the)|discuss|define|(?:the )?(?:phrase|term|words?) )"
)
"""How a sentence begins that asks about a phrase and does not give the order."""

LETTER = (
    r"(?:^|\n)\W*(?:hi|hello|hey|dear|good (?:morning|afternoon|evening))\b[^.!?\n]{0,30}[,!]"
    r"|\b(?:thanks|thank you|regards|best|cheers|love|sincerely),?\s*[a-z ]{0,24}\W*(?:\n|$)"
)
"""A text that begins or ends as a letter does."""

SPACED = r"(?:\b[a-z][-_.*·| ]{1,2}){7,}[a-z]\b"
"""Words written letter by letter."""

SQUEEZED = (
    "ignoreprevious", "ignoreall", "ignoreyour", "ignoretheabove", "ignoreprior", "ignoreany",
    "disregardprevious", "disregardall", "disregardyour", "disregardprior", "disregardtheabove",
    "forgetprevious", "forgetall", "forgetyour", "systemprompt", "previousinstructions",
    "doanythingnow", "developermode", "jailbreak",
)  # fmt: skip
"""What is suspicious when it is spelled letter by letter."""
