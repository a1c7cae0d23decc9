//! The steps that build a server: a port and a volume if the class has them, then the server. Each step searches for the result
//! of an earlier attempt.

use std::time::Duration;

use futures::try_join;
use mcm_driver::{
    Code, DriverError,
    cloud::{CloudFailure, MachineIdentity, PollTiming, UnfinishedCreation, created_for, until_done},
};
use tokio::time::Instant;

use super::{
    order::{Order, Resolved},
    parts::{AddressPair, Part, Port, Volume},
    server::{Server, Stage},
    session::{Kind, Session},
    spec::Reference,
};

/// How a call waits for work of the cloud.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub pace: PollTiming,
    /// The call may end meanwhile, and a later one continues.
    pub may_pause: bool,
}

/// The end of a build.
pub(crate) enum Built {
    /// A server with this ID was ordered.
    Ordered(String),
    /// A port or a volume of the Machine has a server, which lists lack.
    Found(Box<Server>),
}

/// A port or a volume for a server.
enum Usable {
    Free(String),
    Taken(Box<Server>),
}

impl Session {
    /// Orders a server, unless a part of the Machine shows that there is one.
    pub async fn build(&self, order: &Order, wait: Wait) -> Result<Built, UnfinishedCreation> {
        let spec = &order.spec;
        let flavor = Reference::Name(spec.flavor.clone());
        let (image, flavor, networks) = try_join!(
            self.id_of(Kind::Image, &spec.image),
            self.id_of(Kind::Flavor, &flavor),
            self.ids(Kind::Network, spec.networks.iter().map(|one| &one.network).collect()),
        )?;
        let mut resolved = Resolved { image, flavor, networks, port: None, volume: None };
        if let Some(network) = spec.network_of_port() {
            match self.port(order, network).await? {
                Usable::Free(port) => resolved.port = Some(port),
                Usable::Taken(server) => return Ok(Built::Found(server)),
            }
        }
        if spec.disk_type.is_some() && spec.disk_size > 0 {
            match self.volume(order, &resolved.image, wait).await? {
                Usable::Free(volume) => resolved.volume = Some(volume),
                Usable::Taken(server) => return Ok(Built::Found(server)),
            }
        }
        let created = self.region.create_server(order.server(&resolved)).await;
        if let Err(failure) = &created
            && !failure.may_have_had_effect()
            && !failure.code().is_transient()
        {
            self.give_back(order.wanted()).await;
        }
        let what = format!("the creation of server {}", order.name);
        let id = created.map_err(|failure| self.ended(&failure, &what))?;
        self.remember(order.wanted(), &id);
        Ok(Built::Ordered(id))
    }

    /// The server of the Machine that has a part of it: Nova takes the part of one server only.
    async fn taker(
        &self,
        order: &Order,
        part: &(dyn Part + Sync),
        server: &str,
    ) -> Result<Option<Box<Server>>, DriverError> {
        if server.is_empty() || !part.is_ours(order.wanted()) {
            return Ok(None);
        }
        let server = self.region.server(server).await?;
        let server = created_for(server, order.wanted(), &self.scope).into_iter().next();
        Ok(server.filter(|server| server.stage() != Stage::BeingDeleted).map(Box::new))
    }

    /// The port of the server, with the tags of the class.
    async fn port(&self, order: &Order, network: &str) -> Result<Usable, UnfinishedCreation> {
        let (wanted, markers) = (order.wanted(), &self.scope.markers);
        let ports = self.region.ports("name", &order.name).await?;
        for port in &ports {
            if let Some(server) = self.taker(order, port, &port.device_id).await? {
                return Ok(Usable::Taken(server));
            }
        }
        let is_usable =
            |port: &Port| port.is_of(wanted, markers) && port.network_id == network && port.device_id.is_empty();
        let found = ports.into_iter().find(is_usable);
        let port = match found {
            Some(port) => port,
            None => {
                let groups = order.spec.security_groups.iter().cloned().map(Reference::Name);
                let groups: Vec<Reference> = groups.collect();
                let groups = self.ids(Kind::SecurityGroup, groups.iter().collect()).await?;
                let created = self.region.create_port(order.port(network, &groups)).await;
                let what = format!("the creation of port {}", order.name);
                created.map_err(|failure| self.ended(&failure, &what))?
            }
        };
        if !port.has(markers) {
            self.region.tag_port(&port.id, &[&markers.cluster, &markers.role]).await?;
        }
        Ok(Usable::Free(port.id))
    }

    /// The volume of the server, with its image.
    async fn volume(&self, order: &Order, image: &str, wait: Wait) -> Result<Usable, UnfinishedCreation> {
        let volumes = self.region.volumes(&order.name).await?;
        for volume in &volumes {
            if let Some(server) = self.taker(order, volume, volume.server()).await? {
                return Ok(Usable::Taken(server));
            }
        }
        let is_usable = |volume: &Volume| volume.is_of(order.wanted(), &self.scope.markers) && !volume.is_leaving();
        let found = volumes.into_iter().find(is_usable);
        let volume = match found {
            Some(volume) => volume,
            None => {
                let created = self.region.create_volume(order.volume(image)).await;
                let what = format!("the creation of volume {}", order.name);
                created.map_err(|failure| self.ended(&failure, &what))?
            }
        };
        let (id, since) = (volume.id.clone(), volume.since());
        let what = format!("the creation of volume {id}");
        let mut known = Some(volume);
        let available = until_done(&wait.pace, since, wait.may_pause, &what, || {
            let (known, id) = (known.take(), id.as_str());
            async move {
                let volume = match known {
                    Some(volume) => Some(volume),
                    None => self.region.volume(id).await?,
                };
                self.available(order, volume).await
            }
        });
        Ok(Usable::Free(available.await?))
    }

    /// The ID of a volume, once it can be used.
    async fn available(&self, order: &Order, volume: Option<Volume>) -> Result<Option<String>, DriverError> {
        let failed = |code, text: String| Err(DriverError::new(code, format!("volume {} {text}", order.name)));
        match volume {
            Some(volume) if volume.is_available() => Ok(Some(volume.id)),
            Some(volume) if volume.is_pending() => Ok(None),
            Some(volume) if volume.is_broken() => {
                self.give_back(order.wanted()).await;
                failed(Code::Internal, format!("({}) was not built: its status is {}", volume.id, volume.status))
            }
            Some(volume) => {
                failed(Code::Aborted, format!("({}) cannot be used: its status is {}", volume.id, volume.status))
            }
            None => failed(Code::Aborted, "is gone".to_owned()),
        }
    }

    /// The ports of a server that do not accept all addresses of pods yet, with what they have to accept.
    pub async fn closed_ports(&self, server: &Server) -> Result<Vec<(String, Vec<AddressPair>)>, DriverError> {
        if !self.spec.has_pods() {
            return Ok(Vec::new());
        }
        let networks = self.spec.networks.iter().filter(|network| network.has_pods).map(|one| &one.network);
        let networks = self.ids(Kind::Network, networks.collect());
        let (networks, ports) = try_join!(networks, self.region.ports("device_id", &server.id))?;
        if ports.is_empty() {
            let message = format!("server {} has no port yet", server.id);
            return Err(DriverError::new(Code::Unavailable, message));
        }
        let ports = ports.into_iter().filter(|port| networks.contains(&port.network_id));
        let closed = ports.filter_map(|port| {
            let pairs = port.pairs_with(&self.spec.pod_cidrs)?;
            Some((port.id, pairs))
        });
        Ok(closed.collect())
    }

    /// Deletes the port and the volume that mcm created for a Machine whose server cannot be created. What stays is found by the
    /// next attempt, or deleted with the Machine.
    pub async fn give_back(&self, wanted: MachineIdentity<'_>) {
        let wait = Wait { pace: PollTiming { total: Duration::ZERO, ..PollTiming::default() }, may_pause: false };
        if let Err(error) = self.delete_parts(wanted.name, &[], wait, |part| part.is_ours(wanted)).await {
            tracing::warn!(machine = wanted.name, %error, "port and volume of a failed creation are not deleted yet");
        }
    }

    /// Deletes the ports and the volumes with the name of a Machine that `is_of_machine` selects, once its servers are absent.
    pub async fn delete_parts(
        &self,
        name: &str,
        servers: &[String],
        wait: Wait,
        is_of_machine: impl Fn(&dyn Part) -> bool + Send + Sync,
    ) -> Result<(), DriverError> {
        if self.spec.network_of_port().is_some() {
            for port in self.region.ports("name", name).await?.into_iter().filter(|port| is_of_machine(port)) {
                if self.is_of_another(&port.device_id, servers).await? {
                    tracing::warn!(port = port.id, server = port.device_id, "port is of another server, left alone");
                } else {
                    self.region.delete_port(&port.id).await?;
                }
            }
        }
        if self.spec.disk_type.is_none() {
            return Ok(());
        }
        let what = format!("the deletion of volume {name}");
        let is_of_machine = &is_of_machine;
        let look = || async move {
            let mut is_done = true;
            for volume in self.region.volumes(name).await? {
                if !is_of_machine(&volume) || volume.is_leaving() {
                    continue;
                }
                let server = volume.server();
                if self.is_of_another(server, servers).await? {
                    tracing::warn!(volume = volume.id, server, "volume is of another server, left alone");
                } else if volume.is_attached() {
                    is_done = false;
                } else {
                    self.region.delete_volume(&volume.id).await?;
                }
            }
            Ok(is_done.then_some(()))
        };
        until_done(&wait.pace, Instant::now(), wait.may_pause, &what, look).await
    }

    /// The server that has a part exists, and is not in `servers`. `server` is empty if no server has the part.
    async fn is_of_another(&self, server: &str, servers: &[String]) -> Result<bool, DriverError> {
        let is_deleted = server.is_empty() || servers.iter().any(|one| one == server);
        Ok(!is_deleted && self.region.server(server).await?.is_some())
    }

    fn ended(&self, failure: &CloudFailure, what: &str) -> UnfinishedCreation {
        UnfinishedCreation::from_failure(failure, |failure| failure.error_of_creation(what, &self.region.secret))
    }
}
