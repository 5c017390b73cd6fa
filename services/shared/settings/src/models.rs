//! The section `models`, and `local_only`.

use belay_model::Model;

use crate::ValueWithOrigin;

/// The models that plans may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Models {
    /// All of them.
    pub configured: Vec<ValueWithOrigin<Model>>,
    /// Whether only those on this machine may be asked.
    pub local_only: ValueWithOrigin<bool>,
}

impl Default for Models {
    fn default() -> Self {
        Self { configured: Vec::new(), local_only: ValueWithOrigin::default_of(false) }
    }
}
