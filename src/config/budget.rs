//! Converts budget tables: the limits of nights, days, pools and windows, and the budget of one
//! run.

use runner_engine::store::Budget;

use super::settings::{BudgetTable, CapsTable, WindowTable};
use super::values::{Cap, Dollars};

fn most(cap: Option<Cap<u64>>) -> Option<u64> {
    cap.and_then(Cap::most)
}

impl From<CapsTable> for Budget {
    fn from(caps: CapsTable) -> Self {
        Self {
            calls: most(caps.calls),
            tokens: most(caps.tokens),
            micros: caps.money.and_then(Cap::most).map(Dollars::micros),
            seconds: caps.time.and_then(|it| it.0).map(|span| span.as_secs().unsigned_abs()),
            ideas: most(caps.ideas),
        }
    }
}

impl From<WindowTable> for Budget {
    fn from(table: WindowTable) -> Self {
        let WindowTable { length: _, calls, tokens, money, time, ideas } = table;
        CapsTable { calls, tokens, money, time, ideas }.into()
    }
}

impl From<BudgetTable> for Budget {
    fn from(budget: BudgetTable) -> Self {
        Self {
            calls: budget.calls,
            tokens: budget.tokens,
            micros: budget.money.map(Dollars::micros),
            seconds: budget.time.map(|span| span.0.as_secs().unsigned_abs()),
            ideas: budget.ideas,
        }
    }
}
