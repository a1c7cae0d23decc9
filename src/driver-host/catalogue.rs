//! The drivers of a process, and which of them serves a class.

use std::{collections::BTreeMap, sync::Arc};

#[cfg(feature = "remote")]
use super::remote::{DriverEndpoint, RemoteDriver, TextTreatment};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    cloud::driver_of,
    environment::{DriverEnvironment, OpenError},
    guard::{DriverGuards, DriverObserver},
    interface::{Driver, ProblemsHook},
    spec::ClassProblems,
};

/// Lists the drivers of clouds, in this build or left out of it.
macro_rules! clouds {
    ($($feature:literal, $provider:literal, $driver:ident;)*) => {
        /// The drivers of clouds in this build.
        const CLOUDS: &[BuiltIn<'static>] = &[$(
            #[cfg(feature = $feature)]
            BuiltIn { provider: $driver::NAME, open: &$driver::open },
        )*];

        /// Drivers that a build may lack: the name of the provider, and the feature with its driver.
        const LEFT_OUT: &[(&str, &str)] = &[$(
            #[cfg(not(feature = $feature))]
            ($provider, $feature),
        )*];
    };
}

// One line for each cloud: its feature, its name in `MachineClass.provider`, its crate.
clouds! {
    "alicloud", "Alicloud", mcm_driver_alicloud;
    "aws", "AWS", mcm_driver_aws;
    "azure", "Azure", mcm_driver_azure;
    "equinix-metal", "EquinixMetal", mcm_driver_equinix_metal;
    "gcp", "GCP", mcm_driver_gcp;
    "kubevirt", "kubevirt", mcm_driver_kubevirt;
    "metal-stack", "metal", mcm_driver_metal_stack;
    "openstack", "OpenStack", mcm_driver_openstack;
    "vsphere", "vsphere", mcm_driver_vsphere;
    "yandex", "Yandex", mcm_driver_yandex;
}

/// Opens a driver, whose requests are observed.
pub(crate) type DriverOpener<'a> =
    dyn Fn(&DriverEnvironment<'_>, &Arc<dyn DriverObserver>) -> Result<Arc<dyn Driver>, OpenError> + Sync + 'a;

/// A driver in this build.
#[derive(Clone, Copy)]
pub struct BuiltIn<'a> {
    /// Its name in `MachineClass.provider`.
    pub provider: &'static str,
    pub open: &'a DriverOpener<'a>,
}

/// The drivers beside those of clouds.
#[derive(Clone, Copy, Default)]
pub struct ExtraDrivers<'a> {
    /// Drivers in this build.
    pub built_in: &'a [BuiltIn<'a>],
    /// Drivers in other processes. They replace built-in ones of the same name.
    #[cfg(feature = "remote")]
    pub remote: &'a [DriverEndpoint],
}

#[cfg(feature = "remote")]
impl ExtraDrivers<'_> {
    fn has_remote(&self, provider: &str) -> bool {
        self.remote.iter().any(|endpoint| endpoint.name.eq_ignore_ascii_case(provider))
    }
}

/// Drivers by their name in `MachineClass.provider` (case-insensitive), each with its [`Guards`].
#[derive(Clone, Default)]
pub struct DriverCatalogue {
    drivers: BTreeMap<String, Arc<dyn Driver>>,
}

/// No driver serves a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownProvider {
    /// This process has no driver for the provider of the class.
    #[error("class {class:?} names provider {provider:?}, which this controller does not serve: {}", advice_for(.provider, .known))]
    Other {
        /// Name of the class.
        class: String,
        /// The provider it names.
        provider: String,
        /// The names of all drivers, in order.
        known: Vec<String>,
    },
    /// The class names none, and there is not exactly one to choose from.
    #[error("class {class:?} names no provider: {}", advice(.known))]
    Missing {
        /// Name of the class.
        class: String,
        /// The names of all drivers, in order.
        known: Vec<String>,
    },
}

/// The problems of a class are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotValidated {
    /// No driver serves it.
    #[error(transparent)]
    Unknown(#[from] UnknownProvider),
    /// Its driver, another process, has not been called yet or did not respond.
    #[error("the driver did not validate the class yet")]
    NotYet,
}

impl DriverCatalogue {
    /// Opens the drivers of clouds, the other built-in drivers and those in other processes, or only that of `provider`.
    ///
    /// # Errors
    /// No driver has the name `provider`, or a driver cannot be opened.
    pub fn open(
        others: ExtraDrivers<'_>,
        environment: &DriverEnvironment<'_>,
        provider: Option<&str>,
        guards: &DriverGuards,
    ) -> Result<Self, OpenError> {
        let built_in: Vec<BuiltIn<'_>> = CLOUDS.iter().chain(others.built_in).copied().collect();
        let name = provider.map(driver_of);
        let chosen = |one: &&BuiltIn<'_>| name.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(one.provider));
        let chosen = built_in.iter().filter(chosen);
        #[cfg(feature = "remote")]
        let chosen = chosen.filter(|one| !others.has_remote(one.provider));
        let drivers: Vec<_> = chosen.map(|one| (one.open)(environment, &guards.observer)).collect::<Result<_, _>>()?;
        #[cfg(feature = "remote")]
        let drivers: Vec<_> = drivers.into_iter().chain(remote_drivers(others.remote, provider, guards)).collect();
        match provider {
            Some(provider) if drivers.is_empty() => Err(OpenError::NotBuiltIn {
                provider: provider.to_owned(),
                known: built_in.iter().map(|one| one.provider).collect(),
            }),
            _ => Ok(Self::from_drivers(drivers, guards)),
        }
    }

    /// The given drivers; of two with the same name the later.
    pub fn from_drivers(drivers: impl IntoIterator<Item = Arc<dyn Driver>>, guards: &DriverGuards) -> Self {
        let guarded = |driver: Arc<dyn Driver>| (driver.name().to_ascii_lowercase(), guards.around(driver));
        Self { drivers: drivers.into_iter().map(guarded).collect() }
    }

    /// The driver of a class. A class without a provider gets the only driver, if there is exactly one, because some
    /// drivers of the reference do not check the provider.
    ///
    /// # Errors
    /// No driver has that name.
    pub fn get(&self, class: &MachineClass) -> Result<Arc<dyn Driver>, UnknownProvider> {
        let provider = class.provider.trim();
        if provider.is_empty() {
            let mut drivers = self.drivers.values();
            return match (drivers.next(), drivers.next()) {
                (Some(only), None) => Ok(Arc::clone(only)),
                _ => Err(UnknownProvider::Missing { class: name_of(class), known: self.names() }),
            };
        }
        let named = self.drivers.get(&provider.to_ascii_lowercase());
        named.or_else(|| self.drivers.get(&driver_of(provider))).cloned().ok_or_else(|| UnknownProvider::Other {
            class: name_of(class),
            provider: provider.to_owned(),
            known: self.names(),
        })
    }

    /// Validates a class with its driver. Makes no cloud call, and does not wait for a driver that is another process.
    ///
    /// # Errors
    /// No driver serves the class, or its verdict is not known yet.
    pub fn validate(&self, class: &MachineClass) -> Result<ClassProblems, NotValidated> {
        self.get(class)?.known_problems(class).ok_or(NotValidated::NotYet)
    }

    /// Calls `hook` whenever a class that was not validated yet should be validated again.
    pub fn on_problems(&self, hook: &ProblemsHook) {
        self.drivers.values().for_each(|driver| driver.on_problems(Arc::clone(hook)));
    }

    /// The driver of this name, in any spelling.
    #[cfg(feature = "remote")]
    pub(super) fn named(&self, provider: &str) -> Option<Arc<dyn Driver>> {
        self.drivers.get(&provider.trim().to_ascii_lowercase()).cloned()
    }

    /// Names as the drivers spell them, in order.
    pub fn names(&self) -> Vec<String> {
        self.drivers.values().map(|driver| driver.name().to_owned()).collect()
    }
}

impl std::fmt::Debug for DriverCatalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Catalogue").field(&self.names()).finish()
    }
}

#[cfg(feature = "remote")]
fn remote_drivers(
    remote: &[DriverEndpoint],
    provider: Option<&str>,
    guards: &DriverGuards,
) -> impl Iterator<Item = Arc<dyn Driver>> {
    let chosen = remote.iter().filter(move |one| provider.is_none_or(|name| name.eq_ignore_ascii_case(&one.name)));
    chosen.map(|endpoint| {
        Arc::new(RemoteDriver::open(endpoint, TextTreatment::Cleaned, &guards.observer)) as Arc<dyn Driver>
    })
}

fn name_of(class: &MachineClass) -> String {
    class.metadata.name.clone().unwrap_or_default()
}

/// The cloud for trials. A process serves it only if a flag names it.
pub const ON_REQUEST: &str = "simulated";

fn advice_for(provider: &str, known: &[String]) -> String {
    if provider.eq_ignore_ascii_case(ON_REQUEST) {
        return "the simulated cloud is for trials: serve it with --simulated-cloud=embedded, or with its URL"
            .to_owned();
    }
    let wanted = driver_of(provider);
    match LEFT_OUT.iter().find(|(name, _)| name.eq_ignore_ascii_case(&wanted)) {
        Some((name, feature)) => format!(
            "this build has no driver for {name}: build it with --features {feature}, or pass a remote driver with \
             --driver {name}=ADDRESS"
        ),
        None => advice(known),
    }
}

/// Names of the clouds whose drivers are in this build, and of those whose drivers it lacks.
pub fn clouds_of_build() -> (Vec<&'static str>, Vec<&'static str>) {
    let built_in = CLOUDS.iter().map(|one| one.provider).collect();
    (built_in, LEFT_OUT.iter().map(|(name, _)| *name).collect())
}

fn advice(known: &[String]) -> String {
    if known.is_empty() {
        "start it with a driver".to_owned()
    } else {
        format!("set provider to one of: {}", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_driver::{SecretPolicy, testing::FakeDriver};
    use rstest::rstest;
    use {
        mcm_simulated_cloud as simulated_cloud,
        mcm_simulated_cloud::{CloudSimulator, SimulationSettings},
    };

    fn catalogue(names: &[&'static str]) -> DriverCatalogue {
        DriverCatalogue::from_drivers(
            names.iter().map(|name| Arc::new(FakeDriver::named(name)) as Arc<dyn Driver>),
            &DriverGuards::unobserved(),
        )
    }

    fn class(provider: &str) -> MachineClass {
        let mut class = MachineClass { provider: provider.to_owned(), ..MachineClass::default() };
        class.metadata.name = Some("x".to_owned());
        class
    }

    #[test]
    fn each_driver_is_in_the_build_or_left_out_of_it() {
        let (built_in, left_out) = clouds_of_build();
        let mut all: Vec<&str> = built_in.iter().chain(&left_out).copied().collect();
        all.sort_unstable();
        let expected =
            ["AWS", "Alicloud", "Azure", "EquinixMetal", "GCP", "OpenStack", "Yandex", "kubevirt", "metal", "vsphere"];
        assert_eq!(all, expected);
        for name in left_out {
            let error = catalogue(&["simulated"]).get(&class(name)).err().unwrap().to_string();
            assert!(error.contains(&format!("this build has no driver for {name}")), "{error}");
        }
    }

    #[rstest]
    #[case(&["AWS", "simulated"], "AWS", "AWS")]
    #[case(&["AWS", "simulated"], "aws", "AWS")]
    #[case(&["AWS", "simulated"], "Simulated", "simulated")]
    #[case(&["simulated"], "", "simulated")]
    #[case::of_an_extension(&["AWS", "kubevirt"], "kubevirtdriver//127.0.0.1:8080", "kubevirt")]
    #[case::with_an_address(&["AWS", "simulated"], "aws//127.0.0.1:8080", "AWS")]
    #[case::a_driver_in_another_process(&["kubevirt", "kubevirtdriver"], "kubevirtdriver", "kubevirtdriver")]
    fn a_class_finds_its_driver(#[case] known: &[&'static str], #[case] provider: &str, #[case] expected: &str) {
        assert_eq!(catalogue(known).get(&class(provider)).unwrap().name(), expected);
    }

    #[rstest]
    #[case("Alicloud", include_str!("../drivers/alicloud/tests/gardener.yaml"))]
    #[case("EquinixMetal", include_str!("../drivers/equinix-metal/tests/gardener.yaml"))]
    #[case("kubevirt", include_str!("../drivers/kubevirt/tests/gardener.yaml"))]
    #[case("metal", include_str!("../drivers/metal-stack/tests/gardener.yaml"))]
    #[case("vsphere", include_str!("../drivers/vsphere/tests/gardener.yaml"))]
    fn a_class_of_gardeners_extension_finds_its_driver(#[case] expected: &'static str, #[case] text: &str) {
        let provider = text.lines().find_map(|line| line.strip_prefix("provider: ")).unwrap().trim_matches('"');
        assert_eq!(catalogue(&["AWS", expected]).get(&class(provider)).unwrap().name(), expected);
    }

    #[rstest]
    #[case(&["simulated"], "foo", r#"class "x" names provider "foo", which this controller does not serve: set provider to one of: simulated"#)]
    #[case(&["simulated", "AWS"], "foo", r#"class "x" names provider "foo", which this controller does not serve: set provider to one of: AWS, simulated"#)]
    #[case(&["simulated", "AWS"], "", r#"class "x" names no provider: set provider to one of: AWS, simulated"#)]
    #[case(&[], "foo", r#"class "x" names provider "foo", which this controller does not serve: start it with a driver"#)]
    fn a_refusal_says_what_to_write_instead(
        #[case] known: &[&'static str],
        #[case] provider: &str,
        #[case] expected: &str,
    ) {
        let error = catalogue(known).get(&class(provider)).err().unwrap();
        assert_eq!(error.to_string(), expected);
    }

    const SIMULATED: &[BuiltIn<'static>] = &[BuiltIn {
        provider: simulated_cloud::driver::NAME,
        open: &|_, _| {
            simulated_cloud::driver::open(Ok(Arc::new(CloudSimulator::new(1, SimulationSettings::default()))))
        },
    }];

    fn open(provider: Option<&str>) -> Result<DriverCatalogue, OpenError> {
        let environment = DriverEnvironment { secrets: &SecretPolicy::default() };
        DriverCatalogue::open(
            ExtraDrivers { built_in: SIMULATED, ..ExtraDrivers::default() },
            &environment,
            provider,
            &DriverGuards::unobserved(),
        )
    }

    fn names_of_all() -> Vec<&'static str> {
        CLOUDS.iter().chain(SIMULATED).map(|one| one.provider).collect()
    }

    #[cfg(feature = "remote")]
    #[rstest]
    #[case::beside_built_in_ones("other", None, &["other", "simulated"])]
    #[case::chosen("other", Some("Other"), &["other"])]
    #[case::not_chosen("other", Some("simulated"), &["simulated"])]
    #[case::in_place_of_a_built_in_one("Simulated", None, &["Simulated"])]
    #[tokio::test]
    async fn drivers_of_other_processes_are_also_opened(
        #[case] name: &str,
        #[case] provider: Option<&str>,
        #[case] expected: &[&str],
    ) {
        let remote = [format!("{name}=unix:///nonexistent/socket").parse().unwrap()];
        let environment = DriverEnvironment { secrets: &SecretPolicy::default() };
        let others = ExtraDrivers { built_in: SIMULATED, remote: &remote };
        let catalogue = DriverCatalogue::open(others, &environment, provider, &DriverGuards::unobserved()).unwrap();
        // This test is not about built-in clouds other than the simulated one.
        let is_cloud = |name: &String| CLOUDS.iter().any(|cloud| cloud.provider == name);
        let names: Vec<_> = catalogue.names().into_iter().filter(|name| !is_cloud(name)).collect();
        assert_eq!(names, expected);
        if expected.contains(&name) {
            let unknown = catalogue.validate(&class(name)).unwrap_err();
            assert_eq!(unknown, NotValidated::NotYet, "what the driver did not say is unknown");
        }
    }

    #[rstest]
    #[case("simulated")]
    #[case("Simulated")]
    #[tokio::test]
    async fn a_built_in_driver_is_opened_by_its_name(#[case] provider: &str) {
        assert_eq!(open(Some(provider)).unwrap().names(), ["simulated"]);
    }

    #[tokio::test]
    async fn without_a_name_all_built_in_drivers_are_opened() {
        let mut expected = names_of_all();
        expected.sort_by_key(|name| name.to_ascii_lowercase());
        assert_eq!(open(None).unwrap().names(), expected);
    }

    #[test]
    fn a_provider_that_is_not_built_in_is_refused_with_those_that_are() {
        let text = open(Some("nonesuch")).unwrap_err().to_string();
        let known = names_of_all().join(", ");
        assert_eq!(text, format!("--provider nonesuch is not built in: use one of {known}"));
    }

    #[tokio::test]
    async fn a_class_is_validated_by_its_driver() {
        let catalogue = open(None).unwrap();
        let mut class = class("simulated");
        class.provider_spec = serde_json::json!({"zone": 7, "regoin": "x"});
        let problems = catalogue.validate(&class).unwrap();
        assert_eq!((problems.errors.len(), problems.warnings.len()), (1, 1));
        class.provider = "nonesuch".to_owned();
        catalogue.validate(&class).unwrap_err();
    }
}
