//! Members of Octavia's pools: servers with an address and a port.
//!
//! The name of a member has the ID of its server, so it is found without the server. Octavia carries a change out after its
//! answer, and until then takes no other one of the same load balancer.

use std::{net::IpAddr, sync::OnceLock};

use mcm_api::{load_balancer::Pool, machine::Machine};
use mcm_driver::{
    Code, DriverError,
    cloud::{CloudSession, MachineIdentity, is_word, until_done},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    build::Wait,
    octavia::{ACTIVE, BEING_DELETED, FAILED, Identified, Member, ShownPool},
    parts::Port,
    session::{Kind, Session, id_of},
};

/// The part of a refusal because of a busy pool or load balancer.
const BUSY: &str = "is immutable";

/// The place of a server in a pool.
struct Seat<'a> {
    pool: &'a Pool,
    server: &'a str,
}

/// The next step of a change.
#[derive(Debug, PartialEq)]
enum Step<'a> {
    Done,
    /// Octavia carries out the last change of the member.
    Wait(&'a Member),
    /// Octavia could not carry it out.
    Failed(&'a Member),
    Add(IpAddr),
    /// The member has the address and another name: it becomes ours.
    Claim(&'a Member),
    /// The member has the address in another subnet, and is not ours.
    Refuse(&'a Member),
    Remove(&'a Member),
}

impl Seat<'_> {
    /// Another subnet is another seat: the member of the old one is told from that of the new one.
    fn name(&self) -> String {
        let server = self.of_server();
        self.pool.subnet_id.as_ref().map_or_else(|| server.clone(), |subnet| format!("{server}-{subnet}"))
    }

    /// It differs for each member that may be added.
    fn key(&self) -> String {
        format!("{}/{}:{}", self.pool.id, self.name(), self.pool.protocol_port)
    }

    fn of_server(&self) -> String {
        format!("mcm-{}", self.server)
    }

    /// The body of the request that adds the member.
    fn member(&self, address: IpAddr) -> Value {
        let mut member = json!({ "name": self.name(), "address": address, "protocol_port": self.pool.protocol_port });
        if let Some(subnet) = &self.pool.subnet_id {
            member["subnet_id"] = subnet.as_str().into();
        }
        member
    }

    /// The next step until the only member of this seat has the address or, without an address, the seat has no member.
    fn step<'a>(&self, members: &'a [Member], address: Option<IpAddr>) -> Step<'a> {
        let name = self.name();
        let of_port = || members.iter().filter(|member| member.protocol_port == Some(self.pool.protocol_port));
        let with_address = address.and_then(|address| of_port().find(|member| member.has(address)));
        let leaving = || {
            let mut others =
                of_port().filter(|one| one.is_named(&name) && with_address.is_none_or(|kept| kept.id != one.id));
            others.next().map_or(Step::Done, removal_of)
        };
        match (address, with_address) {
            (None, _) => leaving(),
            (Some(address), None) => Step::Add(address),
            (Some(_), Some(member)) if member.progress.is(BEING_DELETED) => Step::Wait(member),
            (Some(_), Some(member)) if !member.is_named(&name) => self.replacement_of(member),
            (Some(_), Some(member)) if member.progress.is(FAILED) => Step::Failed(member),
            (Some(_), Some(member)) if !member.progress.is(ACTIVE) => Step::Wait(member),
            (Some(_), Some(_)) => leaving(),
        }
    }

    /// A pool has one member with an address and a port, whose subnet never changes.
    fn replacement_of<'a>(&self, member: &'a Member) -> Step<'a> {
        let name = member.name.as_deref().unwrap_or_default();
        let has_subnet = self.pool.subnet_id.is_none() || self.pool.subnet_id == member.subnet_id;
        match name.strip_prefix(&self.of_server()) {
            Some(rest) if rest.is_empty() || rest.starts_with('-') => removal_of(member),
            _ if has_subnet => Step::Claim(member),
            _ => Step::Refuse(member),
        }
    }
}

fn removal_of(member: &Member) -> Step<'_> {
    if member.progress.is(BEING_DELETED) { Step::Wait(member) } else { Step::Remove(member) }
}

/// The address of a server for members: in the subnet if there is one, otherwise in the network.
fn address_of(ports: &[Port], subnet: Option<&str>, network: Option<&str>) -> Option<IpAddr> {
    let all = ports.iter().flat_map(|port| port.fixed_ips.iter().map(move |fixed| (port, fixed)));
    let usable = all.filter(|(port, fixed)| match subnet {
        Some(subnet) => fixed.subnet_id == subnet,
        None => network.is_none_or(|network| port.network_id == network),
    });
    let addresses = usable.filter_map(|(_, fixed)| fixed.ip_address.parse::<IpAddr>().ok());
    addresses.min_by_key(|address| (address.is_ipv6(), *address))
}

impl Session {
    /// Makes the server of a Machine a member of a pool, and waits until Octavia has carried it out.
    pub async fn join(&self, machine: &Machine, pool: &Pool, wait: Wait) -> Result<(), DriverError> {
        let seat = seat_of(machine, pool)?;
        if self.known(machine).await?.is_none() {
            let text = format!(
                "server {} does not exist, or is not that of machine {:?}",
                seat.server,
                MachineIdentity::from_machine(machine).name
            );
            return Err(DriverError::new(Code::FailedPrecondition, text));
        }
        let address = self.address_for(&seat).await?;
        self.settle(&seat, Some(address), wait).await
    }

    /// Ends the membership of the server of a Machine, which may not exist any more, and waits until Octavia has carried it out.
    pub async fn leave(&self, machine: &Machine, pool: &Pool, wait: Wait) -> Result<(), DriverError> {
        self.settle(&seat_of(machine, pool)?, None, wait).await
    }

    /// The address of a server, from its ports: Nova shows changes later.
    async fn address_for(&self, seat: &Seat<'_>) -> Result<IpAddr, DriverError> {
        let (ports, subnet) = (self.region.ports("device_id", seat.server).await?, seat.pool.subnet_id.as_deref());
        let network = match self.spec.networks.first() {
            Some(first) if subnet.is_none() && ports.len() > 1 => {
                Some(self.id_of(Kind::Network, &first.network).await?)
            }
            _ => None,
        };
        address_of(&ports, subnet, network.as_deref()).ok_or_else(|| {
            let place = subnet.map(|subnet| format!(" in subnet {subnet}")).unwrap_or_default();
            let text = format!("server {} has no address{place} for {}", seat.server, described(seat.pool));
            DriverError::new(Code::FailedPrecondition, text)
        })
    }

    async fn settle(&self, seat: &Seat<'_>, address: Option<IpAddr>, wait: Wait) -> Result<(), DriverError> {
        let what = match address {
            Some(_) => format!("the registration of server {} in {}", seat.server, described(seat.pool)),
            None => format!("the deregistration of server {} from {}", seat.server, described(seat.pool)),
        };
        let pool = self.region.pool(&seat.pool.id).await?.ok_or_else(|| {
            let text = format!("{what} failed: region {} has no such pool", self.region.name);
            DriverError::new(Code::NotFound, text)
        })?;
        // A deletion that Octavia could not carry out is requested again, and the error names the member.
        let failed = OnceLock::new();
        let look = || async {
            let members = self.region.members(&seat.pool.id).await?;
            let step = seat.step(&members, address);
            if let Step::Remove(member) = step
                && member.progress.is(FAILED)
            {
                failed.get_or_init(|| member.id.clone());
            }
            let may_come = address.is_none() && self.additions.may_come(&seat.key());
            let is_done = step == Step::Done && !may_come;
            match self.carry_out(seat, &pool, step, wait).await {
                Err(error) if error.code == Code::Aborted => self.check_is_busy(seat, wait, error).await?,
                done => done?,
            }
            Ok(is_done.then_some(()))
        };
        until_done(&wait.pace, Instant::now(), wait.may_pause, &what, look).await.map_err(|mut error| {
            if let Some(member) = failed.get() {
                let balancer = pool.load_balancer();
                error.message +=
                    &format!("; member {member} has provisioning_status {FAILED}: look at load balancer {balancer}");
            }
            error
        })
    }

    async fn carry_out(
        &self,
        seat: &Seat<'_>,
        pool: &ShownPool,
        step: Step<'_>,
        wait: Wait,
    ) -> Result<(), DriverError> {
        let (region, id, name) = (&self.region, &seat.pool.id, seat.name());
        match step {
            Step::Done => Ok(()),
            Step::Wait(member) | Step::Failed(member) => {
                member.progress.check(&format!("member {}", member.id), pool.load_balancer(), wait.pace.total)
            }
            Step::Add(address) => self.additions.follow(seat.key(), region.add_member(id, seat.member(address))).await,
            Step::Claim(member) => region.rename_member(id, &member.id, &name).await,
            Step::Remove(member) => region.remove_member(id, &member.id).await,
            Step::Refuse(member) => {
                let subnet = member.subnet_id.as_deref().unwrap_or("of the load balancer");
                let text = format!(
                    "member {} of pool {id} has the address of server {} in subnet {subnet}: delete it, or name this subnet",
                    member.id, seat.server
                );
                Err(DriverError::new(Code::FailedPrecondition, text))
            }
        }
    }

    /// Octavia refused a change because of a conflict: Ok if it carries out another one, or did so a moment ago.
    async fn check_is_busy(&self, seat: &Seat<'_>, wait: Wait, conflict: DriverError) -> Result<(), DriverError> {
        let Some(pool) = self.region.pool(&seat.pool.id).await? else { return Err(conflict) };
        pool.progress.check(&described(seat.pool), pool.load_balancer(), wait.pace.total)?;
        let mut is_busy = conflict.message.contains(BUSY) || !pool.progress.is(ACTIVE);
        for Identified { id } in &pool.loadbalancers {
            let Some(progress) = self.region.load_balancer(id).await? else { continue };
            progress.check(&format!("load balancer {id}"), id, wait.pace.total)?;
            is_busy |= !progress.is(ACTIVE);
        }
        if is_busy { Ok(()) } else { Err(conflict) }
    }
}

/// The seat of the server of a Machine.
///
/// # Errors
/// [`Code::FailedPrecondition`]: the Machine has no provider ID. [`Code::InvalidArgument`]: an ID cannot be one.
fn seat_of<'a>(machine: &'a Machine, pool: &'a Pool) -> Result<Seat<'a>, DriverError> {
    if !is_word(&pool.id) {
        return Err(DriverError::new(Code::InvalidArgument, format!("{:?} is not the ID of a pool", pool.id)));
    }
    let missing = || DriverError::new(Code::FailedPrecondition, "the machine has no provider ID");
    Ok(Seat { pool, server: id_of(machine)?.ok_or_else(missing)? })
}

fn described(pool: &Pool) -> String {
    format!("pool {} with port {}", pool.id, pool.protocol_port)
}
