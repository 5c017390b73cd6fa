//! The section `models`, and `local_only`.

use belay_model::Model;

use crate::ValueWithOrigin;

/// The models that plans may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models {
    /// All of them.
    pub configured: Vec<ValueWithOrigin<Model>>,
    /// Whether only those on this machine may be asked.
    pub local_only: ValueWithOrigin<bool>,
}
