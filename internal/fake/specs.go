package fake

import "net/http"

// A Spec is one provider: what stands in for it, and what can be asked of it.
type Spec struct {
	// Adapter is the name of the adapter that the provider is the other side of.
	Adapter string
	// New returns the provider with what it has on record. It behaves well at
	// all times: what goes wrong is a Script's part. Serve lets it handle one
	// request after another, so that it needs no locks.
	New func(l *Ledger) http.Handler
	// Reads reports whether a request that is no GET or HEAD changes nothing, as
	// a search by POST. Nil says that there is none such.
	Reads func(r *http.Request, body []byte) bool
	// Cases has at least one for each operation of the adapter that is not a
	// read.
	Cases []Case
}

// A Case is one request that has an effect.
type Case struct {
	// Operation is its name in the adapter.
	Operation string
	// Target is path and query, absolute on the provider's host.
	Method, Target string
	Header         http.Header
	Body           string
	// Setup has on record what must be there first; nil if nothing. All cases of
	// a Spec meet on one ledger, in any order: what is there first needs ids
	// that nothing new will get.
	Setup func(l *Ledger)
	// Recovered is a jq program on which the first answer's body and a recovered
	// one must agree; "" says that they must be the same JSON.
	Recovered string
	// Deduplicates says that the provider absorbs or refuses a second copy.
	Deduplicates bool
}

// Specs lists every provider, by name.
func Specs() []Spec {
	return []Spec{
		Adyen(),
		Airtable(),
		Anthropic(),
		Asana(),
		AWS(),
		Checkout(),
		Discord(),
		Gemini(),
		GitHub(),
		GitHubGraphQL(),
		GitLab(),
		Gmail(),
		GoogleCalendar(),
		GoogleDrive(),
		HubSpot(),
		IdempotencyKey(),
		Intercom(),
		Jira(),
		Kubernetes(),
		Linear(),
		Mailgun(),
		MicrosoftGraph(),
		ModernTreasury(),
		Monday(),
		Notion(),
		OpenAI(),
		PagerDuty(),
		PayPal(),
		Plaid(),
		Postmark(),
		Resend(),
		Salesforce(),
		SendGrid(),
		Shopify(),
		Slack(),
		Square(),
		StandardWebhooks(),
		Stripe(),
		Telegram(),
		Trello(),
		Twilio(),
		Wise(),
		Zendesk(),
	}
}
