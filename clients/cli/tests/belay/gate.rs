//! The approval gate's half of the scripted server.

use belay_proto::v1::{
    AnswerFormRequest, Approval, DecideApprovalRequest, Decision, FileDiff, GetApprovalChangeRequest,
    GetApprovalChangeResponse, GetApprovalRequest, ListApprovalChangesRequest, ListApprovalChangesResponse,
    ListApprovalsRequest, ListApprovalsResponse, WatchApprovalsRequest, WatchApprovalsResponse, approval::State,
    approval_service_server::ApprovalService,
};
use futures::stream::Empty;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::server::ScriptedServer;

impl ScriptedServer {
    /// The changes of an approval.
    fn files(&self, name: &str) -> Vec<FileDiff> {
        let world = self.world.lock().unwrap();
        let approval = world.approvals.iter().find(|approval| approval.name == name);
        approval.and_then(|approval| approval.preview.clone()).unwrap_or_default().files
    }
}

#[tonic::async_trait]
impl ApprovalService for ScriptedServer {
    async fn get_approval(&self, request: Request<GetApprovalRequest>) -> Result<Response<Approval>, Status> {
        let name = request.into_inner().name;
        let found = self.world.lock().unwrap().approvals.iter().find(|approval| approval.name == name).cloned();
        found.map(Response::new).ok_or_else(|| Status::not_found("there is no such approval"))
    }

    async fn list_approvals(
        &self,
        request: Request<ListApprovalsRequest>,
    ) -> Result<Response<ListApprovalsResponse>, Status> {
        let request = request.into_inner();
        let beginning = format!("{}/approvals/{}", request.parent, request.id_prefix);
        let fits = |approval: &&Approval| {
            approval.name.starts_with(&beginning)
                && (request.states.is_empty() || request.states.contains(&approval.state))
                && (request.execution.is_empty() || request.execution == approval.execution)
        };
        let world = self.world.lock().unwrap();
        let approvals = world.approvals.iter().filter(fits).take(request.page_size as usize).cloned().collect();
        Ok(Response::new(ListApprovalsResponse { approvals, ..Default::default() }))
    }

    async fn list_approval_changes(
        &self,
        request: Request<ListApprovalChangesRequest>,
    ) -> Result<Response<ListApprovalChangesResponse>, Status> {
        let files = self.files(&request.into_inner().name);
        let changes: Vec<_> = files.into_iter().filter_map(|file| file.change).collect();
        Ok(Response::new(ListApprovalChangesResponse { total: changes.len() as i32, changes, ..Default::default() }))
    }

    /// A line a page.
    async fn get_approval_change(
        &self,
        request: Request<GetApprovalChangeRequest>,
    ) -> Result<Response<GetApprovalChangeResponse>, Status> {
        let request = request.into_inner();
        let files = self.files(&request.name);
        let at_index = |file: &FileDiff| file.change.as_ref().is_some_and(|change| change.index == request.index);
        let file = files.into_iter().find(at_index);
        let file = file.ok_or_else(|| Status::not_found("it has no such change"))?;
        let at: usize = request.page_token.parse().unwrap_or(0);
        let unified: String = file.unified.split_inclusive('\n').skip(at).take(1).collect();
        let is_last = at + 1 >= file.unified.lines().count();
        let next_page_token = if is_last { String::new() } else { (at + 1).to_string() };
        let change = Some(FileDiff { unified, ..file });
        Ok(Response::new(GetApprovalChangeResponse { change, next_page_token, ..Default::default() }))
    }

    async fn answer_form(&self, request: Request<AnswerFormRequest>) -> Result<Response<Approval>, Status> {
        let request = request.into_inner();
        let mut world = self.world.lock().unwrap();
        world.answers.push(request.clone());
        if let Some(why) = world.refused_answers.pop() {
            let mut details = ErrorDetails::with_error_info("ANSWER_INVALID", "belay.dev", []);
            details.add_bad_request_violation("answer/version", &why);
            let message = format!("The answer does not match the form: /version: {why}.");
            return Err(Status::with_error_details(Code::InvalidArgument, message, details));
        }
        let found = world.approvals.iter_mut().find(|approval| approval.name == request.name);
        let approval = found.ok_or_else(|| Status::not_found("there is no such approval"))?;
        approval.set_state(State::Answered);
        Ok(Response::new(approval.clone()))
    }

    async fn decide_approval(&self, request: Request<DecideApprovalRequest>) -> Result<Response<Approval>, Status> {
        let request = request.into_inner();
        let mut world = self.world.lock().unwrap();
        world.decisions.push(request.clone());
        let found = world.approvals.iter_mut().find(|approval| approval.name == request.name);
        let approval = found.ok_or_else(|| Status::not_found("there is no such approval"))?;
        if approval.subject_digest != request.subject_digest {
            return Err(Status::failed_precondition("the digest is another one"));
        }
        approval.set_state(match request.decision() {
            Decision::Approve => State::Approved,
            Decision::Skip => State::Skipped,
            _ => State::Denied,
        });
        Ok(Response::new(approval.clone()))
    }

    type WatchApprovalsStream = Empty<Result<WatchApprovalsResponse, Status>>;

    async fn watch_approvals(
        &self,
        _: Request<WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchApprovalsStream>, Status> {
        Err(Status::unimplemented("not scripted"))
    }
}
