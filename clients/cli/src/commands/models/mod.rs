//! `belay models …`.

pub(crate) mod check;
pub(crate) mod list;

use belay_proto::v1::{ListModelsRequest, Model};

use crate::{
    commands::listing::pages,
    connect::{Models, Requirement, Session},
    context::Context,
    failure::Failure,
};

/// Makes requests about models.
async fn ask<T>(
    context: &Context,
    question: impl AsyncFnOnce(&mut Models, &Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    context
        .with_session(Requirement::Services, async |session| {
            let mut client = session.models();
            question(&mut client, session).await
        })
        .await
}

/// All models.
async fn all(client: &mut Models) -> Result<Vec<Model>, Failure> {
    let found = pages(usize::MAX, async |page_size, page_token| {
        let page = client.list_models(ListModelsRequest { page_size, page_token }).await?.into_inner();
        Ok((page.models, page.next_page_token))
    });
    Ok(found.await?.items)
}
