//! Delays between the requests of a client.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

/// Waits for up to `longest` milliseconds.
pub(in super::super) async fn pause(random: &mut StdRng, longest: u64) {
    tokio::time::sleep(Duration::from_millis(random.random_range(10..longest))).await;
}
