//! A class with access to its cloud, and the look-ups of its servers.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError, Vm, VmsByProviderId,
    cloud::{CloudSession, LookupCoalescer, LruCache, MachineIdentity, created_for, is_word},
};

use super::{
    account::Region,
    additions::Additions,
    calls::Resource,
    keystone::Service,
    login::Login,
    names::IDS,
    server::Server,
    spec::{Reference, Scope, Spec},
};

/// Longer regular expressions make URLs that servers refuse.
const LONGEST_PATTERN: usize = 4000;

/// `lastKnownState` of a Machine whose server was ordered, before the provider ID.
pub(crate) const CREATED: &str = "Created ";

/// The answer of a look-up of several Machines.
pub(crate) struct FoundServers {
    servers: Vec<Server>,
    /// Servers with these names were asked for, so one with another name is not among them.
    is_list: bool,
}

/// The IDs of resources with one name.
type Ids = Result<Arc<Vec<String>>, DriverError>;

/// A region with a login.
pub(crate) type RegionPlace = (Login, String);
/// Look-ups of servers in one place that wait at the same time share a request.
pub(crate) type ServerLookups = LookupCoalescer<RegionPlace, Result<Arc<FoundServers>, DriverError>>;
/// IDs of servers that were ordered, by the UID of their Machine.
pub(crate) type Ordered = LruCache<String, String>;
/// Look-ups of one name at the same time share a request.
pub(crate) type Names = LookupCoalescer<(Login, String, Kind, String), Ids>;

/// Resources that classes give by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Image,
    Flavor,
    Network,
    SecurityGroup,
}

impl Kind {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Flavor => "flavor",
            Self::Network => "network",
            Self::SecurityGroup => "security group",
        }
    }

    /// The service and the path of the list, the field with its entries, and whether the service selects by name.
    const fn list(self) -> (Service, &'static str, &'static str, bool) {
        match self {
            Self::Image => (Service::Compute, "images", "images", true),
            Self::Flavor => (Service::Compute, "flavors", "flavors", false),
            Self::Network => (Service::Network, "networks", "networks", true),
            Self::SecurityGroup => (Service::Network, "security-groups", "security_groups", true),
        }
    }
}

/// A class with access to its cloud.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub region: Region,
    pub look_ups: Arc<ServerLookups>,
    pub names: Arc<Names>,
    pub ordered: Arc<Ordered>,
    pub additions: Arc<Additions>,
}

impl Session {
    /// Remembers the server that was ordered for a Machine.
    pub fn remember(&self, wanted: MachineIdentity<'_>, id: &str) {
        self.ordered.put(wanted.uid.to_owned(), id.to_owned());
    }

    /// The server with an ID, which probably has this name.
    pub async fn server(&self, name: &str, id: &str) -> Result<Option<Server>, DriverError> {
        let asked = format!("{name}/{id}");
        let seen = self.look(&asked).await?;
        match seen.servers.iter().find(|server| server.id == id) {
            Some(found) => Ok(Some(found.clone())),
            // It may have another name, and a list may lack servers of a cell that is down.
            None if seen.is_list => self.region.server(id).await,
            None => Ok(None),
        }
    }

    /// The servers that were asked for, by name or by name and ID, and maybe others.
    async fn look(&self, asked: &str) -> Result<Arc<FoundServers>, DriverError> {
        let region = self.region.clone();
        let send = move |asked: BTreeSet<String>| async move { seen(&region, &asked).await.map(Arc::new) };
        self.look_ups.look_up(self.place(), asked.to_owned(), send).await
    }

    /// The ID of a resource.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: no resource has the name, or several do. [`Code::ResourceExhausted`]: there is no such flavor;
    /// another class may have one that is there.
    pub async fn id_of(&self, kind: Kind, reference: &Reference) -> Result<String, DriverError> {
        let name = match reference {
            Reference::Id(id) => return Ok(id.clone()),
            Reference::Name(name) => name,
        };
        let found = self.ids_of(kind, name).await?;
        let (what, region) = (kind.text(), &self.region.name);
        match found.as_slice() {
            [id] => Ok(id.clone()),
            [] => {
                let code = if kind == Kind::Flavor { Code::ResourceExhausted } else { Code::InvalidArgument };
                Err(DriverError::new(code, format!("there is no {what} {name:?} in region {region}")))
            }
            several => {
                let text = format!("{} {what}s in region {region} are named {name:?}: use an ID", several.len());
                Err(DriverError::new(Code::InvalidArgument, text))
            }
        }
    }

    /// The IDs of several resources, in order.
    pub async fn ids(&self, kind: Kind, references: Vec<&Reference>) -> Result<Vec<String>, DriverError> {
        let mut ids = Vec::new();
        for reference in references {
            ids.push(self.id_of(kind, reference).await?);
        }
        Ok(ids)
    }

    /// The IDs of all resources with a name.
    pub async fn ids_of(&self, kind: Kind, name: &str) -> Result<Arc<Vec<String>>, DriverError> {
        let (region, owned) = (self.region.clone(), name.to_owned());
        let key = (self.login.clone(), self.region.name.clone(), kind, name.to_owned());
        let send = move |_| async move {
            let (service, path, field, selects) = kind.list();
            let query = Some(("name", owned.as_str())).filter(|_| selects);
            let query: Vec<_> = query.into_iter().collect();
            let all: Vec<Resource> = region.list(service, &[path], &query, field).await?;
            let named = all.into_iter().filter(|one| one.name.as_deref() == Some(&owned));
            Ok(Arc::new(named.map(|one| one.id).collect()))
        };
        self.names.look_up(key, name.to_owned(), send).await
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = Server;
    type Place = RegionPlace;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> RegionPlace {
        (self.login.clone(), self.region.name.clone())
    }

    async fn with_id(&self, machine: &Machine) -> Result<Vec<Server>, DriverError> {
        let Some(id) = id_of(machine)? else { return Ok(Vec::new()) };
        Ok(self.server(MachineIdentity::from_machine(machine).name, id).await?.into_iter().collect())
    }

    async fn named(&self, machine: &Machine) -> Result<Vec<Server>, DriverError> {
        Ok(self.look(MachineIdentity::from_machine(machine).name).await?.servers.clone())
    }

    async fn created_for(&self, machine: &Machine) -> Result<Vec<Server>, DriverError> {
        let wanted = MachineIdentity::from_machine(machine);
        let found = created_for(self.named(machine).await?, wanted, &self.scope);
        if !found.is_empty() {
            return Ok(found);
        }
        // While Nova moves a new server into its cell, lists may lack it.
        let uid = wanted.uid.to_owned();
        let Some(id) = self.ordered.get(&uid).or_else(|| ordered_before(machine)) else { return Ok(found) };
        let server = self.region.server(&id).await?;
        if server.is_none() {
            self.ordered.forget(&uid);
        }
        Ok(created_for(server, wanted, &self.scope))
    }

    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        let all = self.region.servers(None).await?;
        Ok(self.listing(all.into_iter().filter(Server::exists).collect()))
    }

    fn shown(&self, server: &Server) -> Vm {
        server.vm(&self.region.name)
    }
}

/// The servers that several look-ups ask for: one by its name or ID, several by a regular expression of their names.
async fn seen(region: &Region, asked: &BTreeSet<String>) -> Result<FoundServers, DriverError> {
    let id = asked.first().filter(|_| asked.len() == 1).and_then(|one| Some(one.split_once('/')?.1));
    if let Some(id) = id {
        return Ok(FoundServers { servers: region.server(id).await?.into_iter().collect(), is_list: false });
    }
    let found = region.servers(pattern(asked).as_deref()).await?;
    Ok(FoundServers { servers: found.into_iter().filter(Server::exists).collect(), is_list: true })
}

/// A regular expression of some names. `None` if it were too long.
fn pattern(asked: &BTreeSet<String>) -> Option<String> {
    let names: BTreeSet<String> = asked.iter().map(|one| plain(one.split('/').next().unwrap_or_default())).collect();
    let names: Vec<String> = names.into_iter().collect();
    let pattern = format!("^({})$", names.join("|"));
    (pattern.len() <= LONGEST_PATTERN).then_some(pattern)
}

/// A name in a regular expression: databases differ in how they escape, so `.` replaces every other character.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '.' }).collect()
}

/// The server that another process ordered, as the status of the Machine has it.
pub(crate) fn ordered_before(machine: &Machine) -> Option<String> {
    let id = state_of(machine).strip_prefix(CREATED)?.rsplit('/').next()?;
    is_word(id).then(|| id.to_owned())
}

pub(crate) fn state_of(machine: &Machine) -> &str {
    machine.status.as_ref().map(|status| status.last_known_state.as_str()).unwrap_or_default()
}

/// The ID of the server in the provider ID of a Machine, if it has one.
pub(crate) fn id_of(machine: &Machine) -> Result<Option<&str>, DriverError> {
    IDS.word_of_machine(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(&["a-1"], "^(a-1)$")]
    #[case(&["b", "a"], "^(a|b)$")]
    #[case::with_an_id(&["a/1", "a", "b/2"], "^(a|b)$")]
    #[case::no_operator(&["a.b", "a|b", "a$"], "^(a.|a.b)$")]
    fn names_are_a_regular_expression(#[case] asked: &[&str], #[case] expected: &str) {
        let asked = asked.iter().map(|one| (*one).to_owned()).collect();
        assert_eq!(pattern(&asked).as_deref(), Some(expected));
    }

    #[test]
    fn very_many_names_are_looked_for_in_the_whole_project() {
        let asked = (0..1000).map(|number| format!("machine-{number}")).collect();
        assert_eq!(pattern(&asked), None);
    }
}
