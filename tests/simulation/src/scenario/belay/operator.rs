//! An operator who makes a backup of everything and puts it back once. What was observed and what the tools did in between belongs to a history that is gone.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::hosts::Site;
use super::records::Observations;
use super::site::HORIZON;
use crate::trace;
use crate::world::World;

/// How long the copy waits for an approval that is not used yet.
const MAX_WAIT: Duration = Duration::from_secs(6);

/// Makes the backup and puts it back, while faults happen.
pub(super) fn restore_everything(
    world: &mut World,
    site: &Site,
    observed: &Observations,
    seed: u64,
    decided: impl Fn() -> bool,
) -> turmoil::Result {
    let mut random = StdRng::seed_from_u64(seed ^ 0xBAC);
    let is_accepted = random.random_bool(0.5);
    site.backup.announce(is_accepted);
    world.run_until(HORIZON.mul_f64(random.random_range(0.1..0.6)), &decided)?;
    if random.random_bool(0.5) {
        // A person has approved, and nothing has come of it yet.
        world.run_until(MAX_WAIT, || observed.unused_approvals() > 0 || decided())?;
    }
    site.backup.make(world)?;
    trace::event("everything is copied");
    let (seen, outside, owners) = (observed.copy(), site.outside.copy(), site.owners.copy());
    site.backup.made();
    world.run_until(HORIZON.mul_f64(random.random_range(0.1..0.6)), &decided)?;
    site.backup.restore(world)?;
    trace::event("everything is replaced by its copy");
    trace::count("backups restored");
    observed.restore(seen);
    site.outside.restore(outside);
    site.owners.restore(owners, is_accepted);
    site.backup.restored();
    Ok(())
}
