//! The keys of those who answer.

use super::Shape::{Duration, Flag, OneOf, Size, Text, Texts, Wait, Whole};
use super::{Row, U32};
use runner_backends::registry::KINDS as BACKENDS;

pub(super) const BACKEND: &[Row] = &[
    (
        "type",
        OneOf(&BACKENDS),
        "What it is: \"builtin\" answers by rule, \"command\" runs a program, \"claude\" and \"codex\" those agents, \"anthropic\", \"openai\" and \"ollama\" ask a model's API.",
    ),
    ("model", Text, "The model that an agent is told to use; of a command a name for reports."),
    (
        "program",
        Text,
        "The program: a name to look for in PATH, or a path. Agents have their own name by default.",
    ),
    ("args", Texts, "The program's arguments. Never a secret: every user can read them."),
    ("env", Texts, "Names of variables that the program may see besides the ordinary ones."),
    (
        "artifact",
        Text,
        "The file in its run folder that has the answer; without it, standard output.",
    ),
    (
        "quiet",
        Flag,
        "Whether it says nothing before its answer, so that silence is no sign of trouble.",
    ),
    ("first_byte", Duration, "How long it may take until it says anything; without it 2 minutes."),
    (
        "idle",
        Duration,
        "How long it may be silent between two signs of life; without it 5 minutes.",
    ),
    (
        "grace",
        Duration,
        "How long it may take to end, after its answer or when it is asked to; without it 10 seconds.",
    ),
    ("output_cap", Size, "How much it may say on each of its outputs; without it 64MB."),
    (
        "env_file",
        Text,
        "A file of further variables, NAME=VALUE, that only its owner may read: / or ~/ first.",
    ),
    (
        "state",
        Text,
        "An agent's own folder with its login (CLAUDE_CONFIG_DIR, CODEX_HOME): / or ~/ first.",
    ),
    ("sessions", Flag, "Whether an agent keeps its own records of what was asked."),
    ("tools", Texts, "Tools that an agent may use; none unless they are named."),
    (
        "max_turns",
        Whole(1, U32),
        "Turns of one request of claude. Default: 1 without tools, 20 with.",
    ),
    ("fallback_model", Text, "The model that claude uses while its first one is overloaded."),
    (
        "slots",
        Whole(1, U32),
        "How many requests of the same login are under way at once. Default: 1 for agents, no limit for APIs.",
    ),
    (
        "recording",
        Text,
        "replay: the file with the answers, from `runner replay RUN --export FILE`; below the project, or / or ~/ first.",
    ),
    (
        "fallback",
        Texts,
        "Which [backends.NAME] are asked in this order when it is not there, may not or has no room now.",
    ),
    ("pool", Text, "Which [pools.NAME] of the user's own file it spends from."),
    (
        "base_url",
        Text,
        "The address of a model's API; without it that of its maker, and of Ollama on this host.",
    ),
    (
        "api",
        OneOf(&["chat", "responses"]),
        "Which API of openai: Chat Completions, which others have too, or Responses. Default: \"chat\".",
    ),
    (
        "key",
        Text,
        "The name of the variable that has an API's key, or keyring:NAME; never the key. Default: the usual one where base_url is not set, else none.",
    ),
    (
        "structured",
        OneOf(&["schema", "tool", "prompt"]),
        "How an API's answer is held to its schema: by the \"schema\" itself, by a \"tool\" (anthropic's default), or only by words in the \"prompt\".",
    ),
    (
        "max_output_tokens",
        Whole(1, U32),
        "The longest answer of an API, in tokens, where that is less than a job asks for.",
    ),
    ("connect", Duration, "How long it may take to reach an API; without it 10 seconds."),
    (
        "ca_file",
        Text,
        "Certificates that an API is trusted with besides the host's own, as PEM: / or ~/ first.",
    ),
    (
        "num_ctx",
        Whole(1, U32),
        "The window of an ollama model in tokens. Default: 4096 to 32768, as the question needs.",
    ),
    (
        "keep_alive",
        Wait,
        "How long an ollama model stays loaded after its answer; without it as Ollama does.",
    ),
];
