//! The commands and flags of `runner schedule`.

use clap::Subcommand;

use super::Listing;

/// Shows schedules and starts nothing.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Show the next scheduled times of a job or an expression
    #[command(
        after_help = "Example: runner schedule next --cron '30 2 * * MON-FRI' --zone Europe/Berlin --from 2026-03-27"
    )]
    Next {
        #[command(flatten)]
        what: ScheduleTarget,
        /// The start: RFC 3339, or a date or time in the zone [default: now]
        #[arg(long, value_name = "T")]
        from: Option<String>,
        /// Number of scheduled times
        #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        count: u32,
        #[command(flatten)]
        listing: Listing,
    },
    /// Describe in words when a job or an expression is due
    #[command(after_help = "Example: runner schedule explain --cron '0 9 1 * 5'")]
    Explain {
        #[command(flatten)]
        what: ScheduleTarget,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show what would run, be caught up with or be missed: all enabled jobs of the project, or one
    #[command(
        after_help = "Example: runner schedule simulate --from 2026-11-20 --to 2026-11-24 --asleep 2026-11-20T20:00..2026-11-23T08:00"
    )]
    Simulate {
        /// Simulate only this job
        job: Option<String>,
        /// The start of the period: RFC 3339, or a date or time in the zone of the project's night
        #[arg(long, value_name = "T")]
        from: String,
        /// The end of the period
        #[arg(long, value_name = "T")]
        to: String,
        /// A time without ticks, which ends with a tick (may be repeated)
        #[arg(long, value_name = "FROM..TO")]
        asleep: Vec<String>,
        /// The interval of the host timer's ticks
        #[arg(long, value_name = "D", default_value = "15m")]
        tick: String,
        #[command(flatten)]
        listing: Listing,
    },
}

/// The schedule of a job, or a schedule to try.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("schedule").args(["job", "cron", "every", "daily"]).required(true)))]
pub struct ScheduleTarget {
    /// The job of the project
    pub job: Option<String>,
    /// A cron expression: minute, hour, day of month, month, day of week
    #[arg(long, value_name = "EXPR")]
    pub cron: Option<String>,
    /// An interval, like 15m
    #[arg(long, value_name = "D")]
    pub every: Option<String>,
    /// A time of each day, like 02:30
    #[arg(long, value_name = "T")]
    pub daily: Option<String>,
    /// The IANA zone [default: the job's, else that of the project's night, else this machine's]
    #[arg(long)]
    pub zone: Option<String>,
}
