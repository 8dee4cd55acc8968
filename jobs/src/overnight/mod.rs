//! overnight
pub mod commit;
pub mod corpus;
pub mod halt;
pub mod lock;
pub mod staging;
