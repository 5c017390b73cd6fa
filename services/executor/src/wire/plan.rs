//! Plans.

mod read;
pub(super) mod values;
mod write;

pub(crate) use self::{
    read::{checked_plan_from, stored_plan_from},
    write::{audit_level_to, plan_message, spec_message, stored_plan_message},
};

#[cfg(test)]
mod tests;
