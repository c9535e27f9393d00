package fake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// githubNodes is how many objects a connection shows here at the most.
const githubNodes = 100

// A githubCreate is a mutation that makes a text, where its payload has it, and
// under which argument and connection of what it is found.
type githubCreate struct{ mutation, kind, object, parent, connection string }

var githubCreates = []githubCreate{
	{"addComment", "IssueComment", "comment", "subjectId", "comments"},
	{"createDiscussion", "Discussion", "discussion", "repositoryId", "discussions"},
	{"createIssue", "Issue", "issue", "repositoryId", "issues"},
	{"createPullRequest", "PullRequest", "pullRequest", "repositoryId", "pullRequests"},
}

// githubGraphQL is https://docs.github.com/en/graphql: clientMutationId is handed
// back and means nothing.
type githubGraphQL struct{ ledger *Ledger }

func newGitHubGraphQL(l *Ledger) http.Handler {
	g := &githubGraphQL{l}
	l.Put("head", map[string]any{"id": "B_1", "oid": "0000"})
	s := &gqlServer{nullable: true, fields: map[string]func(gqlField) (any, *gqlError){
		"node": g.node, "createCommitOnBranch": g.commit, "addStar": g.star, "removeStar": g.unstar, "closeIssue": g.closeIssue,
		"viewer": func(gqlField) (any, *gqlError) { return map[string]any{"login": "octocat"}, nil },
	}}
	for _, c := range githubCreates {
		s.fields[c.mutation] = func(f gqlField) (any, *gqlError) { return g.make(c, f) }
	}
	s.refuse = func(r *http.Request, _ string, _ []gqlField) *gqlError {
		if r.URL.Path != "/graphql" || !strings.HasPrefix(strings.ToLower(r.Header.Get("Authorization")), "bearer ") {
			return &gqlError{message: "This endpoint requires you to be authenticated.", kind: "FORBIDDEN"}
		}
		return nil
	}
	return s
}

func gqlInput(f gqlField) map[string]any {
	input, _ := f.args["input"].(map[string]any)
	if input == nil {
		return map[string]any{}
	}
	return input
}

func (g *githubGraphQL) make(c githubCreate, f gqlField) (any, *gqlError) {
	input := gqlInput(f)
	if input[c.parent] == nil {
		return nil, &gqlError{message: "Could not resolve to a node", kind: "NOT_FOUND"}
	}
	n := g.ledger.Next()
	made := g.ledger.Add(c.kind, map[string]any{
		"__typename": c.kind, "id": fmt.Sprintf("N_%d", n), "number": float64(n), "of": input[c.parent],
		"title": input["title"], "body": input["body"], "url": fmt.Sprintf("https://github.com/o/r/issues/%d", n),
	})
	payload := map[string]any{"__typename": strings.ToUpper(c.mutation[:1]) + c.mutation[1:] + "Payload", "clientMutationId": input["clientMutationId"]}
	if c.mutation == "addComment" {
		payload["commentEdge"] = map[string]any{"__typename": "IssueCommentEdge", "node": made}
		return payload, nil
	}
	payload[c.object] = made
	return payload, nil
}

// node shows an issue's comments with the newest last, and what a repository has
// with the newest first.
func (g *githubGraphQL) node(f gqlField) (any, *gqlError) {
	id, _ := f.args["id"].(string)
	node := map[string]any{"id": id, "__typename": map[bool]string{true: "Repository", false: "Issue"}[strings.HasPrefix(id, "R_")]}
	for _, c := range githubCreates {
		var list []any
		for _, o := range g.ledger.Visible(c.kind) {
			if o["of"] == id {
				list = append(list, o)
			}
		}
		list = list[max(0, len(list)-githubNodes):]
		if c.parent == "repositoryId" {
			slices.Reverse(list)
		}
		node[c.connection] = map[string]any{"nodes": append([]any{}, list...)}
	}
	return node, nil
}

// commit moves a branch on, if its head is the one that is expected.
func (g *githubGraphQL) commit(f gqlField) (any, *gqlError) {
	input := gqlInput(f)
	head := g.ledger.Get("head", "B_1")
	if input["expectedHeadOid"] != head["oid"] {
		return nil, &gqlError{message: "Expected branch to point to another commit", kind: "STALE_DATA"}
	}
	oid := fmt.Sprintf("%04x", g.ledger.Next())
	g.ledger.Change("head", "B_1", func(o map[string]any) { o["oid"] = oid })
	return map[string]any{"commit": map[string]any{"oid": oid}, "clientMutationId": input["clientMutationId"]}, nil
}

func (g *githubGraphQL) star(f gqlField) (any, *gqlError) {
	id := gqlInput(f)["starrableId"]
	if g.ledger.Get("star", id) == nil {
		g.ledger.Add("star", map[string]any{"id": id})
	}
	return map[string]any{"starrable": map[string]any{"id": id}}, nil
}

func (g *githubGraphQL) unstar(f gqlField) (any, *gqlError) {
	id := gqlInput(f)["starrableId"]
	g.ledger.Remove("star", id)
	return map[string]any{"starrable": map[string]any{"id": id}}, nil
}

func (g *githubGraphQL) closeIssue(f gqlField) (any, *gqlError) {
	g.ledger.Add("closed", map[string]any{"of": gqlInput(f)["issueId"]})
	return map[string]any{"issue": map[string]any{"id": gqlInput(f)["issueId"]}}, nil
}

// GitHubGraphQL is GitHub's GraphQL API.
func GitHubGraphQL() Spec {
	header := http.Header{"Authorization": {"bearer ghp_1"}, "Content-Type": {"application/json"}}
	spec := Spec{Adapter: "github-graphql", New: newGitHubGraphQL, Reads: gqlReads}
	add := func(operation, document string, input map[string]any) *Case {
		spec.Cases = append(spec.Cases, Case{
			Operation: operation, Method: "POST", Target: "/graphql", Header: header, Body: gqlBody(document, map[string]any{"input": input}),
		})
		return &spec.Cases[len(spec.Cases)-1]
	}
	add("addComment", `mutation($input: AddCommentInput!) { addComment(input: $input) { clientMutationId commentEdge { node { ...C } } } } fragment C on IssueComment { id url body }`,
		map[string]any{"subjectId": "I_1", "body": "hello", "clientMutationId": "mine"})
	add("addComment", `mutation { addComment(input: {subjectId: "I_1", body: """
  a block with "quotes"
"""}) { commentEdge { node { id } } } }`, nil)
	add("createIssue", `mutation($input: CreateIssueInput!) { made: createIssue(input: $input) { issue { id number n: title } } }`,
		map[string]any{"repositoryId": "R_1", "title": "t"})
	add("createPullRequest", `mutation($input: CreatePullRequestInput!) { createPullRequest(input: $input) { pullRequest { id url } clientMutationId } }`,
		map[string]any{"repositoryId": "R_1", "title": "t", "body": "b", "baseRefName": "main", "headRefName": "x"})
	add("createDiscussion", `mutation($input: CreateDiscussionInput!) { createDiscussion(input: $input) { __typename discussion { id } } }`,
		map[string]any{"repositoryId": "R_1", "title": "t", "body": "b", "categoryId": "C_1"})
	add("createCommitOnBranch", `mutation($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }`,
		map[string]any{"branch": map[string]any{"id": "B_1"}, "expectedHeadOid": "0000", "message": map[string]any{"headline": "m"}}).Deduplicates = true
	add("star", `mutation($input: AddStarInput!) { addStar(input: $input) { starrable { id } } }`, map[string]any{"starrableId": "R_1"}).Deduplicates = true
	add("other", `mutation($input: CloseIssueInput!) { closeIssue(input: $input) { issue { id } } }`, map[string]any{"issueId": "I_1"})
	return spec
}
