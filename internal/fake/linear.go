package fake

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A linearCreate is a mutation that makes an object of a type, the query field
// that reads it, and where the payload has it.
type linearCreate struct{ mutation, read, object, payload string }

// linearCreates are those whose input takes an id and whose object can be read
// by it.
var linearCreates = []linearCreate{
	{"agentActivityCreate", "agentActivity", "agentActivity", "AgentActivityPayload"}, {"agentSkillCreate", "agentSkill", "agentSkill", "AgentSkillPayload"},
	{"attachmentCreate", "attachment", "attachment", "AttachmentPayload"}, {"commentCreate", "comment", "comment", "CommentPayload"},
	{"customViewCreate", "customView", "customView", "CustomViewPayload"}, {"customerCreate", "customer", "customer", "CustomerPayload"},
	{"customerNeedCreate", "customerNeed", "need", "CustomerNeedPayload"}, {"customerStatusCreate", "customerStatus", "status", "CustomerStatusPayload"},
	{"customerTierCreate", "customerTier", "tier", "CustomerTierPayload"}, {"cycleCreate", "cycle", "cycle", "CyclePayload"},
	{"documentCreate", "document", "document", "DocumentPayload"}, {"emailIntakeAddressCreate", "emailIntakeAddress", "emailIntakeAddress", "EmailIntakeAddressPayload"},
	{"emojiCreate", "emoji", "emoji", "EmojiPayload"}, {"entityExternalLinkCreate", "entityExternalLink", "entityExternalLink", "EntityExternalLinkPayload"},
	{"favoriteCreate", "favorite", "favorite", "FavoritePayload"}, {"initiativeCreate", "initiative", "initiative", "InitiativePayload"},
	{"initiativeLabelCreate", "initiativeLabel", "initiativeLabel", "InitiativeLabelPayload"},
	{"initiativeRelationCreate", "initiativeRelation", "initiativeRelation", "InitiativeRelationPayload"},
	{"initiativeToProjectCreate", "initiativeToProject", "initiativeToProject", "InitiativeToProjectPayload"},
	{"initiativeUpdateCreate", "initiativeUpdate", "initiativeUpdate", "InitiativeUpdatePayload"},
	{"integrationTemplateCreate", "integrationTemplate", "integrationTemplate", "IntegrationTemplatePayload"},
	{"integrationsSettingsCreate", "integrationsSettings", "integrationsSettings", "IntegrationsSettingsPayload"}, {"issueCreate", "issue", "issue", "IssuePayload"},
	{"issueLabelCreate", "issueLabel", "issueLabel", "IssueLabelPayload"}, {"issueRelationCreate", "issueRelation", "issueRelation", "IssueRelationPayload"},
	{"issueToReleaseCreate", "issueToRelease", "issueToRelease", "IssueToReleasePayload"},
	{"notificationSubscriptionCreate", "notificationSubscription", "notificationSubscription", "NotificationSubscriptionPayload"},
	{"organizationInviteCreate", "organizationInvite", "organizationInvite", "OrganizationInvitePayload"}, {"projectCreate", "project", "project", "ProjectPayload"},
	{"projectLabelCreate", "projectLabel", "projectLabel", "ProjectLabelPayload"},
	{"projectMilestoneCreate", "projectMilestone", "projectMilestone", "ProjectMilestonePayload"},
	{"projectRelationCreate", "projectRelation", "projectRelation", "ProjectRelationPayload"}, {"projectStatusCreate", "projectStatus", "status", "ProjectStatusPayload"},
	{"projectUpdateCreate", "projectUpdate", "projectUpdate", "ProjectUpdatePayload"}, {"releaseCreate", "release", "release", "ReleasePayload"},
	{"releaseNoteCreate", "releaseNote", "releaseNote", "ReleaseNotePayload"}, {"releasePipelineCreate", "releasePipeline", "releasePipeline", "ReleasePipelinePayload"},
	{"releaseStageCreate", "releaseStage", "releaseStage", "ReleaseStagePayload"}, {"roadmapCreate", "roadmap", "roadmap", "RoadmapPayload"},
	{"roadmapToProjectCreate", "roadmapToProject", "roadmapToProject", "RoadmapToProjectPayload"}, {"teamCreate", "team", "team", "TeamPayload"},
	{"teamMembershipCreate", "teamMembership", "teamMembership", "TeamMembershipPayload"}, {"templateCreate", "template", "template", "TemplatePayload"},
	{"timeScheduleCreate", "timeSchedule", "timeSchedule", "TimeSchedulePayload"},
	{"triageResponsibilityCreate", "triageResponsibility", "triageResponsibility", "TriageResponsibilityPayload"},
	{"webhookCreate", "webhook", "webhook", "WebhookPayload"}, {"workflowStateCreate", "workflowState", "workflowState", "WorkflowStatePayload"},
}

func newLinear(l *Ledger) http.Handler {
	s := &gqlServer{fields: map[string]func(gqlField) (any, *gqlError){}}
	for _, c := range linearCreates {
		s.fields[c.mutation] = func(f gqlField) (any, *gqlError) { return linearMake(l, c, f) }
		s.fields[c.read] = func(f gqlField) (any, *gqlError) { return linearRead(l, c, f) }
	}
	s.fields["issueArchive"] = func(f gqlField) (any, *gqlError) {
		l.Add("archived", map[string]any{"of": f.args["id"]})
		return map[string]any{"__typename": "IssueArchivePayload", "success": true, "lastSyncId": float64(l.Next())}, nil
	}
	s.fields["viewer"] = func(gqlField) (any, *gqlError) { return map[string]any{"id": "user-1", "name": "Ada"}, nil }
	s.refuse = func(r *http.Request, _ string, _ []gqlField) *gqlError {
		if r.URL.Path != "/graphql" || !strings.Contains(r.Header.Get("Authorization"), "lin_") {
			return linearError("Authentication required", "authentication error", "AUTHENTICATION_ERROR")
		}
		return nil
	}
	return s
}

func linearError(message, kind, code string) *gqlError {
	return &gqlError{message: message, extensions: map[string]any{"type": kind, "code": code, "userError": true}}
}

// linearMake makes an object under the id that the input has, or one of its
// own. What a second one of the same id is answered is not published; it is not
// made.
func linearMake(l *Ledger, c linearCreate, f gqlField) (any, *gqlError) {
	input, _ := f.args["input"].(map[string]any)
	if input == nil {
		return nil, linearError("Argument Validation Error", "invalid input", "INPUT_ERROR")
	}
	n := l.Next()
	if input["id"] == nil {
		input["id"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	}
	if l.Get(c.read, input["id"]) != nil {
		return nil, linearError("Entity already exists", "invalid input", "INPUT_ERROR")
	}
	input["__typename"] = strings.TrimSuffix(c.payload, "Payload")
	input["identifier"], input["createdAt"] = fmt.Sprintf("ENG-%d", n), l.Now().Format(time.RFC3339)
	// What the SDK wants every issue to have.
	input["reactions"], input["sharedAccess"] = []any{}, map[string]any{"isShared": false, "disallowedIssueFields": []any{}, "sharedWithUsers": []any{}}
	input["url"] = fmt.Sprintf("https://linear.app/x/issue/ENG-%d", n)
	object := l.Add(c.read, input)
	return map[string]any{"__typename": c.payload, "success": true, "lastSyncId": float64(n), c.object: object}, nil
}

// linearRead reads by id, which may be behind what was written.
func linearRead(l *Ledger, c linearCreate, f gqlField) (any, *gqlError) {
	for _, object := range l.Visible(c.read) {
		if object["id"] == f.args["id"] {
			return object, nil
		}
	}
	return nil, linearError("Entity not found: "+c.read, "invalid input", "INPUT_ERROR")
}

// Linear is Linear's GraphQL API.
func Linear() Spec {
	header := http.Header{"Authorization": {"lin_api_1"}, "Content-Type": {"application/json"}}
	spec := Spec{Adapter: "linear", New: newLinear, Reads: gqlReads}
	add := func(operation, document string, variables map[string]any, recovered string) {
		spec.Cases = append(spec.Cases, Case{
			Operation: operation, Method: "POST", Target: "/graphql", Header: header, Body: gqlBody(document, variables), Recovered: recovered,
		})
	}
	for _, c := range linearCreates {
		add(c.mutation, fmt.Sprintf("mutation create($input: Input!) { %s(input: $input) { ...Payload } } fragment Payload on %s { __typename %s { id } success }", c.mutation, c.payload, c.object),
			map[string]any{"input": map[string]any{"title": "t"}}, "")
	}
	add("issueCreate", `mutation { made: issueCreate(input: {title: "one"}) { ok: success lastSyncId issue { ...I } } } fragment I on Issue { id identifier t: title }`, nil,
		"[.data.made | .ok, .issue]")
	add("other", `mutation { issueArchive(id: "1") { success } }`, nil, "")
	return spec
}
