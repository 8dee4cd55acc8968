//! The keys of a night over the corpus.

use super::Shape::{Duration, Flag, Number, Text, Texts, Whole};
use super::{MOST, Row};

pub(super) const OVERNIGHT: &[Row] = &[
    ("goal", Text, "What the night is for."),
    (
        "output_dir",
        Text,
        "Where its artifacts go, below the project; the night before is kept in `runs` beside it.",
    ),
    ("runners", Texts, "Which [backends.NAME] are asked for a bounded report."),
    ("council_timeout", Duration, "How long all of them together may take."),
    ("creative_lane", Flag, "Whether they may propose what nobody asked for."),
    ("queue", Text, "A markdown list of what comes first in the morning, below the project."),
    ("max_iterations", Whole(0, MOST), "The most iterations; 0: as many as the time allows."),
    ("plateau_epsilon", Number(1), "A change of fitness below this is as good as none."),
    ("plateau_window", Whole(2, 1000), "So many of those in a row are a plateau."),
    ("warn_only", Flag, "Whether rescues are spent where a strict night would halt."),
    (
        "checkpoint_max_mb",
        Whole(1, MOST),
        "The most that a checkpoint of the corpus may take, in megabytes.",
    ),
    (
        "morning_command",
        Text,
        "How to begin with a packet: {prompt}, {title}, {packet} and {id} are put in.",
    ),
];
