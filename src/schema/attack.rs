//! `attacks`: OCSF Detection Finding (class 2004, schema 1.8.0), with MITRE ATLAS 5.6.0 ids. No content.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "attack")]
pub struct Attack {
    /// 2004.
    pub class_uid: u32,
    /// 2 Findings.
    pub category_uid: u32,
    /// 1 Create, 2 Update, 3 Close.
    pub activity_id: u32,
    /// class_uid * 100 + activity_id.
    pub type_uid: u32,
    /// 1 informational to 5 critical.
    pub severity_id: u32,
    /// 1 New.
    pub status_id: u32,
    /// Always true.
    pub is_alert: bool,
    /// Creation of the finding, record time, ms.
    pub time: i64,
    /// Start of the activity, ms.
    pub start_time: i64,
    /// End of the activity, ms.
    pub end_time: i64,
    /// One sentence.
    pub message: String,
    /// security_control: 2 Denied, 3 Observed.
    pub action_id: u32,
    /// security_control: 2 Blocked, 3 Quarantined, 19 Alert.
    pub disposition_id: u32,
    /// Product, tenant, correlation.
    pub metadata: Metadata,
    /// The finding itself.
    pub finding_info: FindingInfo,
    /// Scores or the LLR trajectory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anomaly_analyses: Vec<AnomalyAnalysis>,
    /// Opaque evidence.
    pub evidences: Vec<Evidence>,
    /// What OCSF has no place for.
    pub unmapped: Unmapped,
}

/// OCSF metadata.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// OCSF schema version.
    pub version: String,
    /// Product.
    pub product: Product,
    /// Id of this event.
    pub uid: String,
    /// Session, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_uid: Option<String>,
    /// Tenant.
    pub tenant_uid: String,
    /// Profiles in use.
    pub profiles: Vec<String>,
    /// Labels: OWASP, calibration.
    pub labels: Vec<String>,
}

/// OCSF product.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Product {
    /// memsluice.
    pub name: String,
    /// memsluice.
    pub vendor_name: String,
    /// Program version.
    pub version: String,
}

/// OCSF finding_info.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FindingInfo {
    /// Stable id.
    pub uid: String,
    /// Title.
    pub title: String,
    /// Kinds.
    pub types: Vec<String>,
    /// What found it.
    pub analytic: Analytic,
    /// ATLAS.
    pub attacks: Vec<AtlasAttack>,
    /// First event, ms.
    pub first_seen_time: i64,
    /// Last event, ms.
    pub last_seen_time: i64,
    /// Number of events.
    pub related_events_count: u32,
}

/// OCSF analytic: type 1 rule, 2 behavioural, 3 statistical.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analytic {
    /// Id.
    pub uid: String,
    /// Name.
    pub name: String,
    /// Type.
    pub type_id: u32,
    /// Version.
    pub version: String,
}

/// OCSF attack with ATLAS ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtlasAttack {
    /// ATLAS version.
    pub version: String,
    /// Tactic.
    pub tactic: AtlasRef,
    /// Technique.
    pub technique: AtlasRef,
    /// Sub-technique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_technique: Option<AtlasRef>,
}

/// An ATLAS id with its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtlasRef {
    /// Id.
    pub uid: String,
    /// Name.
    pub name: String,
}

/// OCSF anomaly_analyses entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnomalyAnalysis {
    /// What was analysed.
    pub analysis_targets: Vec<NamedValue>,
    /// What was seen.
    pub anomalies: Vec<ObservedAnomaly>,
    /// What is normal.
    pub baselines: Vec<ObservedAnomaly>,
}

/// A named thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedValue {
    /// Name.
    pub name: String,
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
}

/// OCSF anomaly or baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedAnomaly {
    /// Parameter.
    pub observation_parameter: String,
    /// Values.
    pub observations: Vec<Observation>,
}

/// A value as text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// Value.
    pub value: String,
}

/// Opaque evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Decision or event id.
    pub uid: String,
    /// Facts by name.
    pub data: std::collections::BTreeMap<String, String>,
}

/// Our own part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unmapped {
    /// Boundary.
    pub boundary: String,
    /// Decision id, when a decision held the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Reasons.
    pub reasons: Vec<String>,
    /// `assumed` when the parameters are published defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
}
