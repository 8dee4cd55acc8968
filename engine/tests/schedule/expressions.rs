//! Random cron expressions, generated as text and as sets.

use crate::Random;

/// A cron expression as bit sets.
#[derive(Clone, Debug, Default)]
pub struct Expression {
    pub text: String,
    pub minutes: u64,
    pub hours: u64,
    pub months: u64,
    pub days: u64,
    pub last_day: bool,
    pub last_working: bool,
    /// Days of the month whose nearest working day matches.
    pub near: u64,
    /// Weekdays. Bit 0 is Sunday.
    pub weekdays: u64,
    /// Weekdays whose first to fifth occurrence in the month matches.
    pub nth: [u64; 5],
    /// Weekdays whose last occurrence in the month matches.
    pub last_of: u64,
    pub day_starred: bool,
    pub weekday_starred: bool,
    pub elapsed: bool,
}

const MONTHS: [&str; 12] =
    ["jan", "Feb", "MAR", "apr", "may", "JUN", "jul", "Aug", "sep", "OCT", "nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["sun", "MON", "Tue", "wed", "THU", "Fri", "sat"];

/// Generates a field with numbers from `low` to `high`, which is a plain `*` with a probability of
/// `star` percent. Returns its text, its set, and whether the text begins with `*`.
fn numbers(dice: &mut Random, low: u64, high: u64, star: u64) -> (String, u64, bool) {
    if dice.roll(100) < star {
        return ("*".into(), (low..=high).fold(0, |set, n| set | 1 << n), true);
    }
    let parts = match dice.roll(10) {
        0..=5 => 1,
        6..=7 => 2,
        _ => dice.between(2, 4),
    };
    let (mut texts, mut set, mut starred) = (Vec::new(), 0, false);
    for part in 0..parts {
        // Low numbers are preferred, because most transitions happen at low hours and minutes.
        let near = |dice: &mut Random| {
            if dice.roll(2) == 0 {
                dice.between(low, high.min(low + 4))
            } else {
                dice.between(low, high)
            }
        };
        match dice.roll(6) {
            0 => {
                let step = dice.between(1, (high - low + 4).min(40));
                texts.push(format!("*/{step}"));
                set |= (low..=high)
                    .filter(|n| (n - low).is_multiple_of(step))
                    .fold(0, |set, n| set | 1 << n);
                starred |= part == 0;
            }
            1 | 2 => {
                let (a, b) = (near(dice), dice.between(low, high));
                let (from, to) = (a.min(b), a.max(b));
                let step = if dice.roll(2) == 0 { 1 } else { dice.between(1, 12) };
                texts.push(if step == 1 && dice.roll(2) == 0 {
                    format!("{from}-{to}")
                } else {
                    format!("{from}-{to}/{step}")
                });
                set |= (from..=to)
                    .filter(|n| (n - from).is_multiple_of(step))
                    .fold(0, |set, n| set | 1 << n);
            }
            _ => {
                let n = near(dice);
                texts.push(if dice.roll(8) == 0 { format!("{n:02}") } else { n.to_string() });
                set |= 1 << n;
            }
        }
    }
    (texts.join(","), set, starred)
}

impl Expression {
    pub fn draw(dice: &mut Random) -> Self {
        let mut made = Self::default();
        let (minute, minutes, a) = numbers(dice, 0, 59, 12);
        let (hour, hours, b) = numbers(dice, 0, 23, 25);
        (made.minutes, made.hours, made.elapsed) = (minutes, hours, a || b);
        let day = made.draw_day(dice);
        let month = if dice.roll(12) == 0 {
            let (a, b) = (dice.roll(12), dice.roll(12));
            let (from, to) = (a.min(b), a.max(b));
            made.months = (from..=to).fold(0, |set, n| set | 1 << (n + 1));
            format!("{}-{}", MONTHS[from as usize], MONTHS[to as usize])
        } else {
            let (text, set, _) = numbers(dice, 1, 12, 85);
            made.months = set;
            text
        };
        let weekday = made.draw_weekday(dice);
        made.text = format!("{minute} {hour} {day} {month} {weekday}");
        made
    }

    fn draw_day(&mut self, dice: &mut Random) -> String {
        if dice.roll(100) < 70 {
            let (text, set, starred) = numbers(dice, 1, 31, 65);
            (self.days, self.day_starred) = (set, starred);
            return text;
        }
        let mut texts = Vec::new();
        for _ in 0..dice.between(1, 3) {
            match dice.roll(4) {
                0 if !self.last_working => {
                    self.last_day = true;
                    texts.push("L".to_owned());
                }
                1 if !self.last_day => {
                    self.last_working = true;
                    texts.push("lw".to_owned());
                }
                2 => {
                    let day = dice.between(1, 31);
                    self.days |= 1 << day;
                    texts.push(day.to_string());
                }
                _ => {
                    let day = dice.between(1, 31);
                    self.near |= 1 << day;
                    texts.push(format!("{day}W"));
                }
            }
        }
        texts.join(",")
    }

    fn draw_weekday(&mut self, dice: &mut Random) -> String {
        if dice.roll(100) < 60 {
            let (text, set, starred) = numbers(dice, 0, 7, 75);
            self.weekdays = set & 0x7f | set >> 7;
            self.weekday_starred = starred;
            return text;
        }
        let mut texts = Vec::new();
        for _ in 0..dice.between(1, 3) {
            let day = dice.roll(8);
            let bit = 1 << (day % 7);
            let name = if dice.roll(2) == 0 {
                day.to_string()
            } else {
                WEEKDAYS[(day % 7) as usize].to_owned()
            };
            match dice.roll(4) {
                0 => {
                    let nth = dice.between(1, 5);
                    self.nth[nth as usize - 1] |= bit;
                    texts.push(format!("{name}#{nth}"));
                }
                1 => {
                    self.last_of |= bit;
                    texts.push(format!("{name}L"));
                }
                2 => {
                    // A range that ends with `SUN` ends on the last day of the week.
                    let from = dice.between(1, 6);
                    self.weekdays |= (from..=7).fold(0, |set, n| set | 1 << (n % 7));
                    texts.push(format!("{}-SUN", WEEKDAYS[from as usize]));
                }
                _ => {
                    self.weekdays |= bit;
                    texts.push(name);
                }
            }
        }
        texts.join(",")
    }
}
