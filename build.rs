//! Links the program at a fixed address on Linux.
//!
//! The program is started for every hook, tick and status, so its cold start is a feature, and a
//! position-independent executable spends about half of it on tens of thousands of load-time
//! relocations. Linking without PIE resolves them once, here. `-C relocation-model=static` in a
//! cargo configuration would do the same, but it also reaches procedural macros, which are shared
//! objects and then fail to link unless every build names its target.
//!
//! The price: the executable's own image is not randomised in memory; its libraries, stack and
//! heap still are. The program is safe Rust with `unsafe` denied and treats untrusted text as data
//! only, which is why the price is paid.

#[allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "cargo speaks to build scripts this way"
)]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if linux && gnu {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
