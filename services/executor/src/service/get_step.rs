use std::sync::Arc;

use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use tonic::{Code, Status};

use crate::{ExecutionReader, feeds::ReadView, names::step_name, wire::StepDetails};

pub(super) async fn get_step(reading: &Arc<ExecutionReader>, request: v1::GetStepRequest) -> Result<v1::Step, Status> {
    let (name, step) = step_name("name", &request.name)?;
    let details = match request.view() {
        v1::StepView::Basic => StepDetails::Brief,
        v1::StepView::Unspecified | v1::StepView::Full => StepDetails::Full,
    };
    let look = |seen: &ReadView<'_>| {
        let key = seen.execution.step_key(&step);
        key.map(|key| seen.step(key, details))
    };
    reading.follower.look(&name, look).await?.ok_or_else(|| {
        let message = format!("Execution `{}` has no step `{step}`.", name.id);
        status::error(Code::NotFound, reasons::STEP_NOT_FOUND, message).with("name", &request.name).into()
    })
}
