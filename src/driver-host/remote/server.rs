//! Serves the drivers of a catalogue to another process.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, stream};
use tonic::{Request, Response, Status};

use super::{
    proto::{self, driver_server},
    wire,
};
use crate::catalogue::DriverCatalogue;
use mcm_driver::{
    code::Code,
    error::DriverError,
    interface::{Driver, MachineRequest},
};

/// The service of `proto/` for a catalogue.
pub(super) struct CatalogueService(DriverCatalogue);

type RpcResult<T> = Result<Response<T>, Status>;

impl CatalogueService {
    /// With the limits for messages.
    pub(super) fn new_server(drivers: DriverCatalogue) -> driver_server::DriverServer<Self> {
        driver_server::DriverServer::new(Self(drivers))
            .max_decoding_message_size(proto::LARGEST_REQUEST)
            .max_encoding_message_size(proto::LARGEST_RESPONSE)
    }

    fn driver(&self, provider: &str) -> Result<Arc<dyn Driver>, DriverError> {
        self.0.named(provider).ok_or_else(|| {
            let known = self.0.names().join(", ");
            DriverError::new(Code::FailedPrecondition, format!("this process serves {known}, and not {provider:?}"))
        })
    }

    fn call(&self, message: Request<proto::MachineRequest>) -> Result<(Arc<dyn Driver>, MachineRequest), DriverError> {
        let message = message.into_inner();
        let driver = self.driver(&message.provider)?;
        Ok((driver, wire::read_machine_request(message)?))
    }
}

#[tonic::async_trait]
impl driver_server::Driver for CatalogueService {
    type ListStream = Pin<Box<dyn Stream<Item = Result<proto::ListResponse, Status>> + Send>>;

    async fn get_capabilities(
        &self,
        request: Request<proto::GetCapabilitiesRequest>,
    ) -> RpcResult<proto::GetCapabilitiesResponse> {
        let speaks = request.get_ref().protocol_versions.contains(&proto::VERSION);
        let provider = |driver: Arc<dyn Driver>| {
            let capabilities = driver.capabilities();
            proto::Provider {
                name: driver.name().to_owned(),
                initialize: capabilities.initialize,
                list: capabilities.list,
                volume_ids: true,
                inspect: capabilities.inspect,
                tag: capabilities.tag,
                // A driver that cannot returns so for the class.
                capacity: true,
            }
        };
        Ok(Response::new(proto::GetCapabilitiesResponse {
            protocol_version: if speaks { proto::VERSION } else { 0 },
            providers: self.0.names().iter().filter_map(|name| self.0.named(name)).map(provider).collect(),
            program: format!("mcm {}", env!("CARGO_PKG_VERSION")),
        }))
    }

    async fn health(&self, _: Request<proto::HealthRequest>) -> RpcResult<proto::HealthResponse> {
        Ok(Response::new(proto::HealthResponse { serving: true, message: String::new() }))
    }

    async fn validate(&self, request: Request<proto::ValidateRequest>) -> RpcResult<proto::ValidateResponse> {
        let message = request.into_inner();
        let result = async {
            let driver = self.driver(&message.provider)?;
            driver.problems(&wire::read_class(&message.class_json)?).await
        };
        Ok(Response::new(wire::problems(result.await)))
    }

    async fn create(&self, request: Request<proto::MachineRequest>) -> RpcResult<proto::VmResponse> {
        let result = match self.call(request) {
            Ok((driver, request)) => driver.create(&request).await,
            Err(error) => Err(error),
        };
        Ok(Response::new(wire::vm_result(result)))
    }

    async fn initialize(&self, request: Request<proto::MachineRequest>) -> RpcResult<proto::VmResponse> {
        let result = match self.call(request) {
            Ok((driver, request)) => driver.initialize(&request).await,
            Err(error) => Err(error),
        };
        Ok(Response::new(wire::vm_result(result)))
    }

    async fn delete(&self, request: Request<proto::MachineRequest>) -> RpcResult<proto::DeleteResponse> {
        let result = match self.call(request) {
            Ok((driver, request)) => driver.delete(&request).await,
            Err(error) => Err(error),
        };
        Ok(Response::new(wire::deletion(result)))
    }

    async fn status(&self, request: Request<proto::MachineRequest>) -> RpcResult<proto::VmResponse> {
        let result = match self.call(request) {
            Ok((driver, request)) => driver.status(&request).await,
            Err(error) => Err(error),
        };
        Ok(Response::new(wire::vm_result(result)))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> RpcResult<Self::ListStream> {
        let message = request.into_inner();
        let result = async {
            let driver = self.driver(&message.provider)?;
            driver.list(&wire::read_class(&message.class_json)?, &wire::read_secret(message.secret)).await
        };
        let messages = wire::list(result.await).into_iter().map(Ok);
        Ok(Response::new(Box::pin(stream::iter(messages))))
    }

    async fn inspect(&self, request: Request<proto::InspectRequest>) -> RpcResult<proto::InspectResponse> {
        let message = request.into_inner();
        let result = async {
            let driver = self.driver(&message.provider)?;
            driver.inspect(&wire::read_class(&message.class_json)?, &wire::read_secret(message.secret)).await
        };
        Ok(Response::new(wire::inspection(result.await)))
    }

    async fn tag(&self, request: Request<proto::TagRequest>) -> RpcResult<proto::TagResponse> {
        let (metadata, extensions, message) = request.into_parts();
        let machine = Request::from_parts(metadata, extensions, message.machine.unwrap_or_default());
        let result = match self.call(machine) {
            Ok((driver, request)) => driver.tag(&request, message.is_listed).await,
            Err(error) => Err(error),
        };
        Ok(Response::new(wire::tagging(result)))
    }

    async fn capacity(&self, request: Request<proto::CapacityRequest>) -> RpcResult<proto::CapacityResponse> {
        let message = request.into_inner();
        let result = async {
            let driver = self.driver(&message.provider)?;
            driver.capacity(&wire::read_class(&message.class_json)?, &wire::read_secret(message.secret)).await
        };
        Ok(Response::new(wire::capacity(result.await)))
    }

    async fn volume_ids(&self, request: Request<proto::VolumeIdsRequest>) -> RpcResult<proto::VolumeIdsResponse> {
        let message = request.into_inner();
        let result = async {
            let driver = self.driver(&message.provider)?;
            driver.volume_ids(&wire::read_volumes(&message.specs_json)?).await
        };
        Ok(Response::new(wire::volume_ids(result.await)))
    }
}
