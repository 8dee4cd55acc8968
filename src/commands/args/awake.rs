//! The flags that control whether the machine is kept awake.

/// The flags that override `keep_awake` for one command. Without a flag, `keep_awake` of the job
/// decides.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct AwakeFlags {
    /// Keep the machine awake while it runs, regardless of keep_awake
    #[arg(long, conflicts_with = "no_keep_awake")]
    pub keep_awake: bool,
    /// Let the machine fall asleep while it runs, regardless of keep_awake
    #[arg(long)]
    pub no_keep_awake: bool,
}

impl AwakeFlags {
    /// Returns the flags as settings of one run.
    pub fn settings(self) -> Vec<(String, String)> {
        let said = match (self.keep_awake, self.no_keep_awake) {
            (true, _) => "true",
            (_, true) => "false",
            _ => return Vec::new(),
        };
        vec![("keep_awake".to_owned(), said.to_owned())]
    }
}
