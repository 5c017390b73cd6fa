//! Orders that clients are to start.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::bugs::Bugs;
use super::client::Order;
use super::inputs::Inputs;
use super::{hosts, plans, policy};

/// 1 to 6 executions, which start while faults happen.
pub(super) fn orders(random: &mut StdRng, bugs: Bugs) -> Vec<Order> {
    let count = random.random_range(1..=6);
    let order = |number| {
        if bugs.crowds {
            crowded(random, number)
        } else if bugs.broods || (bugs.deletes || bugs.retains) && number % 2 == 0 {
            let plan = plans::brood(random, format!("plan-{number}"));
            Order { plan, ..any_order(random, number) }
        } else {
            any_order(random, number)
        }
    };
    (0..count).map(order).collect()
}

fn any_order(random: &mut StdRng, number: usize) -> Order {
    Order {
        after: Duration::from_millis(random.random_range(0..3000)),
        approval_mode: policy::approval_mode(random),
        plan: plans::generate(random, format!("plan-{number}")),
        workspace: if random.random_bool(0.6) { hosts::SHARED_WORKSPACE.to_owned() } else { String::new() },
        request_id: format!("request-{number}"),
        given_before: 0,
        inputs: Inputs::default(),
        document: None,
        goes_on: 0.3,
        is_driven: false,
        forks: 0.0,
        deletes: 0.0,
        seed: random.random(),
    }
}

/// An execution whose steps append to one file at once, as those of all others do.
fn crowded(random: &mut StdRng, number: usize) -> Order {
    let plan = plans::crowd(random, format!("plan-{number}"));
    Order { plan, workspace: hosts::SHARED_WORKSPACE.to_owned(), ..any_order(random, number) }
}
