//! Defaults of a tool's annotations where they say nothing, as in the Model Context Protocol.

use crate::v1::ToolAnnotations;

impl ToolAnnotations {
    /// Whether the tool changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.read_only.unwrap_or(false)
    }

    /// Whether the tool may delete or overwrite.
    pub fn is_destructive(&self) -> bool {
        !self.is_read_only() && self.destructive.unwrap_or(true)
    }

    /// Whether calling the tool again with the same arguments has no further effect.
    pub fn is_idempotent(&self) -> bool {
        self.is_read_only() || self.idempotent.unwrap_or(false)
    }

    /// Whether the tool may access systems outside the workspace.
    pub fn is_open_world(&self) -> bool {
        self.open_world.unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_says_nothing_may_do_anything() {
        let facts = |annotations: &ToolAnnotations| {
            (
                annotations.is_read_only(),
                annotations.is_destructive(),
                annotations.is_idempotent(),
                annotations.is_open_world(),
            )
        };
        let silent = ToolAnnotations::default();
        assert_eq!(facts(&silent), (false, true, false, true));
        let reads = ToolAnnotations { read_only: Some(true), ..silent.clone() };
        assert_eq!(facts(&reads), (true, false, true, true));
        let writes = ToolAnnotations { destructive: Some(false), open_world: Some(false), ..silent };
        assert_eq!(facts(&writes), (false, false, false, false));
    }
}
