pub mod history;
pub mod index;
