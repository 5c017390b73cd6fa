//! Clients that read all the time, each answer compared with those before it: an execution that was shown as ended is never shown otherwise, unless
//! it was retried, and a wait that returns early returns an end.

use std::time::Duration;

use belay_e2e::client::name;
use belay_proto::v1::{self, watch_executions_response::Content};
use rand::{Rng as _, rngs::SmallRng};
use tokio::{task::JoinHandle, time::Instant};
use tonic::{Code, Status};

use crate::soak::Soak;
use crate::wrong::{CheckResult, Wrong, id};

/// The delay between the requests of one reader.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of rows of a page.
const PAGE: i32 = 30;

/// Starts all readers, which read until they are aborted.
pub(crate) fn start(soak: &Soak) -> Vec<JoinHandle<()>> {
    let mut readers = Vec::new();
    for order in ["end_time desc", "create_time desc"] {
        let soak = soak.clone();
        readers.push(tokio::spawn(async move { list(&soak, order).await }));
    }
    for task in 0..3 {
        let soak = soak.clone();
        readers.push(tokio::spawn(async move { wait(&soak, soak.random(100 + task)).await }));
    }
    let soak = soak.clone();
    readers.push(tokio::spawn(async move { watch(&soak).await }));
    readers
}

/// Lists, and gets each execution that the list shows as ended for the first time.
async fn list(soak: &Soak, order: &str) {
    let mut known = std::collections::HashSet::new();
    loop {
        let request = v1::ListExecutionsRequest {
            parent: "namespaces/default".into(),
            page_size: PAGE,
            order_by: order.into(),
            include_children: true,
            ..Default::default()
        };
        match soak.ask(|| async { soak.reader().raw().list_executions(request.clone()).await }).await {
            Ok(page) => {
                for row in page.executions {
                    if row.end_time.is_some() && known.insert((row.name.clone(), row.last_sequence)) {
                        report(soak, follow(soak, "ListExecutions", &row).await);
                    }
                }
            }
            Err(status) => report(soak, Err(refused("", "ListExecutions", &status))),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Watches all executions, and gets each that the watch shows as ended.
async fn watch(soak: &Soak) {
    let parent = "namespaces/default".into();
    let request = v1::WatchExecutionsRequest { parent, include_children: true, ..Default::default() };
    let mut stream = match soak.reader().raw().watch_executions(request).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return report(soak, Err(refused("", "WatchExecutions", &status))),
    };
    loop {
        match stream.message().await {
            Ok(Some(message)) => {
                soak.count("updates watched", 1);
                if let Some(Content::Execution(row)) = message.content
                    && row.end_time.is_some()
                {
                    report(soak, follow(soak, "WatchExecutions", &row).await);
                }
            }
            Ok(None) => return report(soak, Err(Box::new(Wrong::new("", "", "WatchExecutions ended".to_owned())))),
            Err(status) => return report(soak, Err(refused("", "WatchExecutions", &status))),
        }
    }
}

/// Gets one of the latest executions, and waits for its end.
async fn wait(soak: &Soak, mut random: SmallRng) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(id) = soak.recent(&mut random) else { continue };
        // A view that a reader has is the one that a wait looks at.
        if let Ok(execution) = get(soak, &id).await
            && execution.end_time.is_some()
        {
            continue;
        }
        let longest = Duration::from_millis(random.random_range(50..3_000));
        report(soak, wait_for(soak, &id, longest).await.map(drop));
    }
}

/// Waits for an execution's end: an answer that comes early shows an end.
pub(crate) async fn wait_for(soak: &Soak, id: &str, longest: Duration) -> CheckResult<Option<v1::Execution>> {
    let request = v1::WaitExecutionRequest { name: name(id), longest_wait: Some(belay_proto::duration(longest)) };
    let mut began = Instant::now();
    let asked = soak.ask(|| {
        began = Instant::now();
        let request = request.clone();
        async { soak.reader().raw().wait_execution(request).await }
    });
    let execution = match asked.await {
        Ok(execution) => execution,
        // A child that its parent has not created yet, or an execution that was deleted.
        Err(status) if status.code() == Code::NotFound => return Ok(None),
        Err(status) => return Err(refused(id, "WaitExecution", &status)),
    };
    let waited = began.elapsed();
    soak.count("waits", 1);
    if execution.end_time.is_none() && waited < longest && !soak.is_retried(id) {
        let what = format!(
            "WaitExecution returned {:?} after {waited:?}, and its longest wait was {longest:?}",
            execution.state()
        );
        return Err(Box::new(Wrong::new(id, "", what)));
    }
    if execution.end_time.is_some() {
        follow(soak, "WaitExecution", &execution).await?;
    }
    Ok(Some(execution))
}

/// Gets an execution that was shown as ended.
pub(crate) async fn follow(soak: &Soak, method: &str, row: &v1::Execution) -> CheckResult {
    let execution = match get(soak, id(&row.name)).await {
        Ok(execution) => execution,
        Err(status) if status.code() == Code::NotFound && soak.is_deleted(id(&row.name)) => return Ok(()),
        Err(status) => return Err(refused(&row.name, "GetExecution", &status)),
    };
    soak.count("reads after an end", 1);
    let (then, now) = ((row.last_sequence, row.state()), (execution.last_sequence, execution.state()));
    // After more events it was retried.
    if now.0 < then.0 || (now.0 == then.0 && now.1 != then.1) {
        let what = format!(
            "GetExecution shows event {} and {:?}, after {method} has shown {} and {:?}",
            now.0, now.1, then.0, then.1
        );
        return Err(Box::new(Wrong::new(&row.name, "", what)));
    }
    Ok(())
}

async fn get(soak: &Soak, id: &str) -> Result<v1::Execution, Status> {
    let request = v1::GetExecutionRequest { name: name(id), view: v1::ExecutionView::Basic.into() };
    soak.ask(|| async { soak.reader().raw().get_execution(request.clone()).await }).await
}

/// An error that no method may return here.
pub(crate) fn refused(execution: &str, method: &str, status: &Status) -> Box<Wrong> {
    Box::new(Wrong::new(execution, "", format!("{method} returned {:?}: {}", status.code(), status.message())))
}

fn report(soak: &Soak, checked: CheckResult) {
    if let Err(wrong) = checked {
        soak.report(*wrong);
    }
}
