//! The result of a conversion.

use crate::{left_out::LeftOut, plan::Plan};

/// A plan, and what was left out of it.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// The plan.
    pub plan: Plan,
    /// The parts that the document has and the plan has not, in the document's order.
    pub left_out: Vec<LeftOut>,
}
