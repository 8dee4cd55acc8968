//! Links the program at a fixed address on Linux with glibc.
//!
//! The program is started for every hook, tick and status, so it must start quickly. A
//! position-independent executable spends about half of its cold start on load-time relocations.
//! Linking without PIE resolves them when the program is built. `-C relocation-model=static` in a
//! cargo configuration would do the same, but it also affects procedural macros, which then fail to
//! link unless every build specifies its target.
//!
//! Without PIE, the executable's own image is not randomized in memory, but its libraries, stack
//! and heap are. This is acceptable because all of runner's own code except one module is safe
//! Rust, and treats untrusted text as data only.

#[allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "build scripts communicate with cargo this way"
)]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if linux && gnu {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
