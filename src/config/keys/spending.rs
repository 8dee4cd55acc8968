//! The keys that say how much may be spent: budgets, pools, their windows, prices.

use super::Shape::{CountCap, Duration, Flag, MoneyCap, Number, TimeCap, Whole, Zone};
use super::{MOST, Row};

pub(super) const BUDGET: &[Row] = &[
    ("calls", Whole(0, MOST), "Model calls."),
    ("tokens", Whole(0, MOST), "Tokens, asked and answered."),
    ("money", Number(u32::MAX), "Dollars."),
    ("time", Duration, "Time of runs."),
    ("ideas", Whole(0, MOST), "Ideas shown to a model."),
];

pub(super) const CAPS: &[Row] = &[
    ("calls", CountCap, "Model calls."),
    ("tokens", CountCap, "Tokens, asked and answered."),
    ("money", MoneyCap, "Dollars."),
    ("time", TimeCap, "Time of runs."),
    ("ideas", CountCap, "Ideas shown to a model."),
];

pub(super) const POOL: &[Row] = &[
    ("zone", Zone, "The zone of its days and weeks."),
    (
        "overage",
        Flag,
        "Whether what is billed beyond the subscription is wanted; else such an answer is stopped.",
    ),
    ("unlimited", Flag, "Says that it bounds nothing, which is never so by accident."),
];

pub(super) const WINDOW: &[Row] =
    &[("length", Duration, "How long a window lasts from its first use. Default: 5h.")];

pub(super) const PRICE: &[Row] = &[
    ("input_cost_per_token", Number(1), "Dollars for a token read."),
    ("output_cost_per_token", Number(1), "Dollars for a token written."),
    (
        "cache_read_input_token_cost",
        Number(1),
        "Dollars for a token read out of a cache; without it as any token read.",
    ),
];
