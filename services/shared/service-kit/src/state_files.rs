//! Names of the services' files in a state directory.

/// The executor's journal.
pub const JOURNAL: &str = "journal.db";

/// The tool runner's ledger.
pub const LEDGER: &str = "ledger.db";

/// The approval gate's store.
pub const APPROVALS: &str = "gate.db";

/// The key that seals secrets, of the executor and of the tool runner.
pub const SEAL_KEY: &str = "seal.key";

/// The key with which the approval gate signs.
pub const GATE_KEY: &str = "gate.key";

/// The public half of [`GATE_KEY`].
pub const GATE_PUBLIC_KEY: &str = "gate.pub";

/// The files that show that a directory is a state directory.
pub const TELLING: [&str; 5] = [JOURNAL, LEDGER, APPROVALS, SEAL_KEY, GATE_KEY];
