//! A client that only looks: it lists executions and gets them, and never waits. What it is shown never goes back.

use std::collections::BTreeMap;

use belay_proto::v1;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::client::{Connection, is_terminal, pause};
use super::records::{Look, LookOrder, Observations};
use crate::trace;

/// How many executions of a list it gets.
const MAX_GOT: usize = 3;

/// Looks as long as the simulation runs.
pub(super) async fn look(seed: u64, observed: Observations) -> turmoil::Result {
    let mut random = StdRng::seed_from_u64(seed);
    let mut either = StdRng::seed_from_u64(seed ^ 0x7EAD);
    let mut connection = Connection::to_either(&observed, &mut either);
    // How far each execution was shown to have come, and whether it had ended.
    let mut shown = BTreeMap::<String, (i64, bool)>::new();
    loop {
        pause(&mut random, 150).await;
        let request = v1::ListExecutionsRequest {
            parent: "namespaces/-".to_owned(),
            page_size: 1_000,
            include_children: true,
            ..v1::ListExecutionsRequest::default()
        };
        let page = connection.ask(|mut client| async move { client.list_executions(request).await });
        let Some(page) = page.await else { continue };
        for row in &page.executions {
            if let Some((sequence, true)) = shown.get(&row.name)
                && !is_terminal(row.state())
            {
                observed.looked(Look { name: row.name.clone(), sequence: *sequence, order: LookOrder::EndedAfter });
            }
        }
        for _ in 0..page.executions.len().min(MAX_GOT) {
            let row = &page.executions[random.random_range(0..page.executions.len())];
            let request = v1::GetExecutionRequest { name: row.name.clone(), view: v1::ExecutionView::Basic.into() };
            let execution =
                match connection.try_ask(|mut client| async move { client.get_execution(request).await }).await {
                    Ok(execution) => execution,
                    Err(refused) => {
                        refused.iter().for_each(|status| connection.refused(status));
                        continue;
                    }
                };
            trace::count("looks");
            observed.saw(&execution);
            let (sequence, ended) = (execution.last_sequence, is_terminal(execution.state()));
            let before = shown.insert(row.name.clone(), (sequence, ended));
            if let Some((before, _)) = before.filter(|(before, _)| *before > sequence) {
                let name = &row.name;
                observed.violation(format_args!("{name} was shown up to event {before}, and then up to {sequence}"));
            }
            if is_terminal(row.state()) && !ended {
                observed.looked(Look { name: row.name.clone(), sequence, order: LookOrder::EndedBefore });
            }
        }
    }
}
